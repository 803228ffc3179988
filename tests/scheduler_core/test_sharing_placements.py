"""Placements by device against what one reads in plain Python, start by start, while gangs come and go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Demand, Machine
from scheduler_core.queueing import Discipline
from scheduler_core.target import TargetWorkload, target_of
from tests.examples import examples
from tests.pipelines.simulation.engine.sharing_references import (
    BASELINES,
    CLUSTERS,
    DEMANDS,
    Box,
    ask_of,
    boxes_of,
    decide,
    taken,
)
from tests.pipelines.simulation.engine.simulations import workload
from tests.scheduler_core.cases import machines

GANGS = st.lists(st.tuples(DEMANDS, st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=20)
"""Demands of an instance, instances, and run times."""


def one(gpu: int, cpu: int = 1000) -> Demand:
    return Demand(units=(cpu, 0, gpu), instances=1)


def jobs_of(gangs: list[tuple[Demand, int, int]]) -> Workload:
    """Return gangs that arrive a second apart."""
    types = tuple({demand.gpu_type for demand, _, _ in gangs if demand.gpu_type})
    rows = [
        {
            "at": float(at),
            "cores": demand.units[0] / 1000,
            "gib": demand.units[1] / 1024,
            "gpus": demand.units[2] / 1000,
            "instances": instances,
            "run": run_s,
            "gpu_type": -1 if demand.gpu_type is None else types.index(demand.gpu_type),
        }
        for at, (demand, instances, run_s) in enumerate(gangs)
    ]
    return workload(*rows, gpu_types=types)


def placed(placement: str, drawn: list[Machine], jobs: Workload, target: object = None, **rules: object) -> Schedule:
    discipline = Discipline(placement=placement, match_gpu_type=True, **rules)
    return simulate(jobs, drawn, discipline, target=target, engine="python")


def held(schedule: Schedule, run: int) -> list[tuple[int, int, list[int]]]:
    """Return machine, instances and milli-GPUs by device of a run."""
    span = slice(*schedule.host_offsets[run : run + 2].tolist())
    rows = (schedule.hosts[span], schedule.host_counts[span], schedule.host_devices[span])
    return list(zip(*(each.tolist() for each in rows), strict=True))


@pytest.mark.parametrize("placement", [*BASELINES, "fgd"])
@settings(max_examples=examples(40))
@given(CLUSTERS, GANGS, st.lists(DEMANDS, max_size=6))
def test_every_start_is_decided_as_one_reads_it(
    placement: str, drawn: list[Machine], gangs: list[tuple[Demand, int, int]], wanted: list[Demand]
) -> None:
    target, boxes = target_of(wanted), boxes_of(drawn)
    schedule = placed(placement, drawn, jobs_of(gangs), target)
    running: list[int] = []
    for run, start_s in enumerate(schedule.start_s.tolist()):
        for ended in [each for each in running if schedule.end_run_s[each] <= start_s]:
            running.remove(ended)
            for machine, count, devices in held(schedule, ended):
                give_back(boxes[machine], gangs[schedule.job[ended]][0], count, devices)
        demand, instances, _ = gangs[schedule.job[run]]
        expected: dict[int, list[int]] = {}
        for _ in range(instances):
            found = decide(placement, boxes, ask_of(demand), target)
            assert found is not None
            machine, devices = found
            boxes[machine] = taken(boxes[machine], ask_of(demand), devices)
            row = expected.setdefault(machine, [0] * schedule.host_devices.shape[1])
            for device in devices:
                row[device] += ask_of(demand).milli
        assert {machine: devices for machine, _, devices in held(schedule, run)} == expected
        running.append(run)


def give_back(box: Box, demand: Demand, count: int, devices: list[int]) -> None:
    ask = ask_of(demand)
    box.cpu, box.mem = box.cpu + count * ask.cpu, box.mem + count * ask.mem
    for device in range(len(box.gpus)):
        box.gpus[device] += devices[device]
    if ask.count:
        box.sizes[ask.size] -= count


def first_device(placement: str, target: TargetWorkload | None) -> tuple[int, list[int]]:
    """Return where 0.2 GPU goes beside 0.7 and 0.5 GPU on two devices."""
    jobs = jobs_of([(one(700), 1, 99), (one(500), 1, 99), (one(200), 1, 99)])
    machine, _, devices = held(placed(placement, machines(1, gpus=2), jobs, target), 2)[0]
    return machine, devices


def test_fragmentation_is_what_fgd_avoids_and_packing_does_not() -> None:
    """With 0.3 and 0.5 GPU free and nine of ten who ask for 0.3, an ask for 0.2 should leave them both of 0.3."""
    assert first_device("fgd", target_of([one(300)] * 9 + [one(200)])) == (0, [0, 200])
    assert first_device("gpu_packing", None) == (0, [200, 0])


def test_what_is_drawn_depends_on_the_seed() -> None:
    jobs = jobs_of([(one(500), 1, 9)])
    found = {seed: held(placed("random", machines(9), jobs, seed=seed), 0)[0] for seed in range(60)}
    assert found[3] == held(placed("random", machines(9), jobs, seed=3), 0)[0]
    assert {machine for machine, _, _ in found.values()} == set(range(9))
    assert {devices.index(500) for _, _, devices in found.values()} == {0, 1, 2, 3}

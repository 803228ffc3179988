"""Fragmentation over time: every second of a simulation against what runs then, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.fragmentation_course import fragmentation_course, mean_fragmented_gpus
from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.discipline import Discipline
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import USES, FreeNodes, breakdown
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.target import target_of
from tests.pipelines.simulation.engine.sharing_references import CLUSTERS, DEMANDS

ARRIVALS = st.lists(st.tuples(DEMANDS, st.integers(0, 20), st.integers(1, 15)), min_size=1, max_size=15)


def workload(arrivals: list[tuple[Demand, int, int]]) -> Workload:
    came = sorted(arrivals, key=lambda each: each[1])
    units = np.array([demand.units for demand, _, _ in came])
    run_s = np.array([float(run) for _, _, run in came])
    names = ("T4", "V100", "T4|V100")
    zeros = np.zeros(len(came))
    return Workload(
        arrive_s=np.array([float(at) for _, at, _ in came]),
        request_units=units,
        granted_units=units,
        instances=np.full(len(came), 2),
        gpu_type=np.array([ANY_GPU_TYPE if d.gpu_type is None else names.index(d.gpu_type) for d, _, _ in came]),
        user=np.zeros(len(came), dtype=np.int64),
        priority=zeros,
        run_s=run_s,
        granted_run_s=run_s,
        dies=zeros > 0,
        fails=zeros > 0,
        predicted_s=run_s,
        gpu_types=names,
    )


def free_at(done: Schedule, at_s: float) -> FreeNodes:
    cluster = Cluster(done.machines, sharing="devices")
    cpu, devices = cluster.capacity[:, 0].copy(), cluster.room().devices.copy()
    for run in np.flatnonzero((done.start_s <= at_s) & (done.end_run_s > at_s)).tolist():
        for host in range(done.host_offsets[run], done.host_offsets[run + 1]):
            machine = done.hosts[host]
            cpu[machine] -= done.workload.request_units[done.job[run], 0] * done.host_counts[host]
            devices[machine] -= done.host_devices[host]
    return FreeNodes(cpu_milli=cpu, devices=devices, gpu_type=tuple(machine.gpu_type for machine in done.machines))


@pytest.mark.parametrize("placement", ["fgd", "random", "best_fit"])
@settings(max_examples=20)
@given(CLUSTERS, ARRIVALS, st.sampled_from([float("inf"), 12.0]))
def test_every_second_is_what_runs_then_makes_it(
    placement: str, drawn: list[Machine], arrivals: list[tuple[Demand, int, int]], horizon_s: float
) -> None:
    rules = Discipline(placement=placement, sharing="devices", match_gpu_type=True)
    done = simulate(workload(arrivals), drawn, rules, horizon_s=horizon_s)
    target = target_of([demand for demand, _, _ in arrivals])
    columns = fragmentation_course(done, target, 1.0)
    whys = [breakdown(free_at(done, at_s), target) / 1000 for at_s in columns["time_s"].tolist()]
    found = np.column_stack([columns[f"{name}_gpus"] for name in USES])
    assert found == pytest.approx(np.reshape(whys, (-1, len(USES))))
    assert columns["free_gpus"] == pytest.approx(found.sum(axis=1))
    assert columns["fragmented_gpus"] == pytest.approx(columns["free_gpus"] - columns["usable_gpus"])
    fives = fragmentation_course(done, target, 5.0)
    lasts_s = fives["until_s"] - fives["time_s"]
    assert (fives["fragmented_gpus"] * lasts_s).sum() == pytest.approx(columns["fragmented_gpus"].sum())


def test_a_run_without_end_is_cut_by_the_horizon() -> None:
    """One of two GPUs is taken from 2 s on, for ever: no mean may be of what comes after the horizon."""
    came = workload([(Demand(units=(0, 0, 1000), instances=1), 2, 1)])
    endless = replace(
        came,
        run_s=np.full(1, np.inf),
        granted_run_s=np.full(1, np.inf),
        instances=np.ones(1, dtype=np.int64),
    )
    machine = [Machine(name="m", cpu_cores=1, mem_gib=1, gpus=2)]
    target = target_of([Demand(units=(0, 0, 2000), instances=1)])

    done = simulate(endless, machine, Discipline(placement="fgd"), horizon_s=10.0)

    columns = fragmentation_course(done, target, 2.0)
    assert columns["free_gpus"].tolist() == [2.0, 1.0, 1.0, 1.0, 1.0]
    assert columns["fragmented_gpus"].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert mean_fragmented_gpus(done, target, 0.0, 10.0) == pytest.approx(0.8)


def test_a_mean_stops_where_it_is_told_to() -> None:
    """One of two GPUs is taken from 2 s to 6 s, and a short job comes at 100 s."""
    came = [(Demand(units=(0, 0, 1000), instances=1), 2, 4), (Demand(units=(0, 0, 0), instances=1), 100, 1)]
    lone = replace(workload(came), instances=np.ones(2, dtype=np.int64))
    done = simulate(lone, [Machine(name="m", cpu_cores=1, mem_gib=1, gpus=2)], Discipline(placement="fgd"))
    target = target_of([Demand(units=(0, 0, 2000), instances=1)])

    means = [mean_fragmented_gpus(done, target, since_s, until_s) for since_s, until_s in ((0, 4), (2, 6), (0, 8))]

    assert means == pytest.approx([0.5, 1.0, 0.5])
    assert np.isnan(mean_fragmented_gpus(done, target, 4.0, 4.0))


def test_pooled_gpus_and_steps_that_are_none_are_refused() -> None:
    one = [(Demand(units=(0, 0, 500), instances=1), 0, 1)]
    machine = [Machine(name="m", cpu_cores=1, mem_gib=1, gpus=1)]
    with pytest.raises(BadInput, match="pooled"):
        fragmentation_course(simulate(workload(one), machine, Discipline()), target_of([]), 1.0)
    with pytest.raises(BadInput, match="pooled"):
        mean_fragmented_gpus(simulate(workload(one), machine, Discipline()), target_of([]), 0.0, 1.0)
    shared = simulate(workload(one), machine, Discipline(placement="fgd"))
    with pytest.raises(BadInput, match="step"):
        fragmentation_course(shared, target_of([]), 0.0)

"""Time series: averages by hand, their integral against the metrics, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.metrics import Uses, summarise
from pipelines.simulation.measures.series import mean_fragmented_gpus, series
from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import FreeNodes, fragmented
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.queueing import Discipline
from scheduler_core.target import target_of
from tests.examples import examples
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule, schedules
from tests.pipelines.simulation.engine.sharing_references import CLUSTERS, DEMANDS


def test_averages_count_every_second_of_a_step() -> None:
    came = [Came(at_s=5.0, run_s=20.0), Came(at_s=5.0, run_s=50.0)]
    ran = [Ran(job=0, start_s=5.0, end_s=25.0), Ran(job=1, start_s=25.0, end_s=75.0, ending=Ending.RUNNING)]

    columns = series(schedule(came, ran, end_s=45.0), 20.0)

    assert columns["time_s"].tolist() == [0.0, 20.0, 40.0]
    assert columns["until_s"].tolist() == [20.0, 40.0, 45.0]
    assert columns["allocated_gpus"].tolist() == [2 * 15 / 20, 2.0, 2.0]
    assert columns["allocated_cpu_cores"].tolist() == [4 * 15 / 20, 4.0, 4.0]
    assert columns["allocated_mem_gib"].tolist() == [8 * 15 / 20, 8.0, 8.0]
    assert columns["free_gpus"].tolist() == [4 - 1.5, 2.0, 2.0]
    assert columns["waiting"].tolist() == [15 / 20, 5 / 20, 0.0]
    assert columns["running"].tolist() == [15 / 20, 1.0, 1.0]
    assert columns["completed"].tolist() == [0, 1, 1]
    assert "used_gpus" not in columns


def test_what_is_killed_waits_again_and_what_never_fits_never_waits() -> None:
    came = [Came(run_s=10.0), Came(never_fits=True)]
    ran = [Ran(job=0, start_s=0.0, end_s=10.0, ending=Ending.KILLED), Ran(job=0, start_s=30.0, end_s=40.0, full=True)]

    assert series(schedule(came, ran, end_s=40.0), 10.0)["waiting"].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_use_is_drawn_slower_by_the_stretch_and_unknown_use_is_left_out() -> None:
    stretched = Came(granted=(2.0, 4.0, 1.0), run_s=10.0, granted_run_s=20.0)
    ran = schedule([stretched], [Ran(job=0, start_s=0.0, end_s=20.0)], end_s=40.0)

    columns = series(ran, 20.0, uses=Uses(mean=np.array([[3000.0, math.nan, 1000.0]])))

    assert columns["used_cpu_cores"].tolist() == [1.5, 0.0]
    assert columns["used_mem_gib"].tolist() == [0.0, 0.0]
    assert columns["used_gpus"].tolist() == [0.5, 0.0]


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, 1e-9])
def test_a_step_that_makes_no_sense_is_refused(step_s: float) -> None:
    with pytest.raises(BadInput, match="step"):
        series(schedule([]), step_s)


def test_a_simulation_of_no_time_has_no_steps() -> None:
    assert {len(column) for column in series(schedule([], end_s=0.0), 60.0).values()} == {0}


def test_rounding_makes_no_step_of_its_own() -> None:
    assert series(schedule([], end_s=3 * 0.7 + 1e-12), 0.7)["time_s"].tolist() == [0.0, 0.7, 1.4]
    assert len(series(schedule([], end_s=1e-9), 1.0)["time_s"]) == 1


@settings(max_examples=examples(40), deadline=None)
@given(ran=schedules(), step_s=st.sampled_from([0.7, 1.0, 7.0, 60.0, 1000.0]))
def test_steps_add_up_to_the_metrics_and_stay_within_capacity(ran: Schedule, step_s: float) -> None:
    known = Uses(mean=ran.workload.request_units * 0.3)

    columns, figures = series(ran, step_s, uses=known), summarise(ran, uses=known)

    lasts_s = columns["until_s"] - columns["time_s"]
    assert lasts_s.sum() == pytest.approx(ran.end_s)
    assert (lasts_s > 0.0).all()
    for resource, name, each in (("cpu_cores", "cpu", 8.0), ("mem_gib", "mem", 16.0), ("gpus", "gpu", 4.0)):
        total = each * len(ran.machines)
        allocated, used = columns[f"allocated_{resource}"], columns[f"used_{resource}"]
        assert (allocated <= total + 1e-9).all()
        assert (used <= allocated + 1e-9).all()
        assert allocated @ lasts_s / ran.end_s / total == pytest.approx(getattr(figures, f"{name}_allocated_frac"))
        if len(ran.job):
            assert used @ lasts_s / ran.end_s / total == pytest.approx(getattr(figures, f"{name}_used_frac"))
    assert (columns["waiting"] >= 0.0).all()
    assert (np.diff(columns["completed"]) >= 0).all()
    assert columns["completed"][-1] == figures.completed


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
    cpu, devices = cluster.capacity[:, 0].copy(), cluster.devices.copy()
    for run in np.flatnonzero((done.start_s <= at_s) & (done.end_run_s > at_s)).tolist():
        for host in range(done.host_offsets[run], done.host_offsets[run + 1]):
            machine = done.hosts[host]
            cpu[machine] -= done.workload.request_units[done.job[run], 0] * done.host_counts[host]
            devices[machine] -= done.host_devices[host]
    return FreeNodes(cpu_milli=cpu, devices=devices, gpu_type=tuple(machine.gpu_type for machine in done.machines))


@pytest.mark.parametrize("placement", ["fgd", "random", "best_fit"])
@settings(max_examples=examples(20))
@given(CLUSTERS, ARRIVALS, st.sampled_from([float("inf"), 12.0]))
def test_every_second_is_what_runs_then_makes_it(
    placement: str, drawn: list[Machine], arrivals: list[tuple[Demand, int, int]], horizon_s: float
) -> None:
    rules = Discipline(placement=placement, sharing="devices", match_gpu_type=True)
    done = simulate(workload(arrivals), drawn, rules, horizon_s=horizon_s)
    target = target_of([demand for demand, _, _ in arrivals])
    lost = [fragmented(free_at(done, at_s), target).sum() / target.total / 1000 for at_s in np.arange(0.0, done.end_s)]
    for second, gpus in enumerate(lost):
        until_s = min(second + 1.0, done.end_s)
        assert mean_fragmented_gpus(done, target, float(second), until_s) == pytest.approx(gpus)
    if float(done.end_s).is_integer() and lost:
        assert mean_fragmented_gpus(done, target, 0.0, done.end_s) == pytest.approx(np.mean(lost))


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

    assert mean_fragmented_gpus(done, target, 0.0, 10.0) == pytest.approx(0.8)


def test_pooled_gpus_are_refused() -> None:
    one = [(Demand(units=(0, 0, 500), instances=1), 0, 1)]
    machine = [Machine(name="m", cpu_cores=1, mem_gib=1, gpus=1)]
    with pytest.raises(BadInput, match="pooled"):
        mean_fragmented_gpus(simulate(workload(one), machine, Discipline()), target_of([]), 0.0, 1.0)

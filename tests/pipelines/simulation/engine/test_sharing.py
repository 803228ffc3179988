"""Simulations with GPUs shared device by device: what always holds, and what differs from pooled ones, by hand."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Sharing, shape
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES, Discipline
from tests.examples import examples
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, simulated, starts_of, workload
from tests.pipelines.simulation.engine.worlds import OPTIONS, World, world

SEEDS = st.integers(0, 2**32 - 1)


def scaled(jobs: Workload, part: float) -> Workload:
    """Return the workload with GPU requests of so many parts."""
    units = {}
    for name in ("request_units", "granted_units"):
        units[name] = getattr(jobs, name).copy()
        units[name][:, 2] = (units[name][:, 2] * part).astype(np.int64)
    return replace(jobs, **units)


def on_whole_gpus(jobs: Workload) -> Workload:
    """Return the workload with GPU requests rounded up to whole GPUs, granted ones too."""
    units = {}
    for name in ("request_units", "granted_units"):
        units[name] = getattr(jobs, name).copy()
        units[name][:, 2] = -(-units[name][:, 2] // 1000) * 1000
    return replace(jobs, **units)


def shared(asked: World, sharing: Sharing = "devices", **rules: Any) -> Schedule:
    rules = {"sharing": sharing, **rules}
    return simulate(
        asked.jobs,
        asked.machines,
        replace(asked.discipline, **rules),
        horizon_s=asked.horizon_s,
        engine="python",
    )


def asked_units(schedule: Schedule, at: int) -> np.ndarray[Any, Any]:
    jobs, job = schedule.workload, schedule.job[at]
    return (jobs.request_units if schedule.full[at] else jobs.granted_units)[job]


def hosts_by_run(schedule: Schedule) -> list[slice]:
    return [slice(*span) for span in zip(schedule.host_offsets[:-1], schedule.host_offsets[1:], strict=True)]


def check_devices(schedule: Schedule) -> None:
    """Check every device at every start, and what every instance has of devices."""
    assert schedule.host_devices is not None
    gpus = np.array([machine.gpus for machine in schedule.machines])
    whole = np.where(np.arange(gpus.max()) < gpus[:, None], 1000, 0)
    held = []
    for at, span in enumerate(hosts_by_run(schedule)):
        count, milli = shape(int(asked_units(schedule, at)[2]))
        rows, instances = schedule.host_devices[span], schedule.host_counts[span]
        assert rows.sum(axis=1).tolist() == (instances * count * milli).tolist()
        if milli:
            # Parts of one GPU are parts of one device each; beyond that it is whole devices.
            assert (rows % milli == 0).all()
            assert milli < 1000 or set(np.unique(rows).tolist()) <= {0, 1000}
        by_machine = np.zeros_like(whole)
        by_machine[schedule.hosts[span]] += rows
        held.append(by_machine)
    for at, start_s in enumerate(schedule.start_s.tolist()):
        live = schedule.end_run_s[: at + 1] > start_s
        together = np.array(held[: at + 1])[live].sum(axis=0)
        assert (together <= whole).all(), "no device gives more than it has"


def check_that_all_end(asked: World, schedule: Schedule) -> None:
    """Check that jobs end, are too large, run still, or wait where nothing lets them start any more."""
    arrived = asked.jobs.arrive_s <= schedule.end_s
    done = np.isfinite(schedule.finished_s)
    running = set(schedule.job[schedule.ending == Ending.RUNNING].tolist())
    assert not (done & schedule.never_fits).any()
    left = set(np.flatnonzero(arrived & ~done & ~schedule.never_fits).tolist()) - running
    if math.isinf(asked.horizon_s):
        assert not left
        assert not running
    for job in left & set(schedule.job.tolist()):
        last = np.flatnonzero(schedule.job == job)[-1]
        assert schedule.ending[last] in (Ending.KILLED, Ending.PREEMPTED), "it waits again"


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@settings(max_examples=examples(40))
@given(
    seed=SEEDS,
    option=st.sampled_from(OPTIONS),
    policy=st.sampled_from(sorted(QUEUE_POLICIES)),
    part=st.sampled_from([1.0, 0.7, 1.5]),
)
def test_devices_hold_under_every_placement_and_policy(
    placement: str, seed: int, option: str, policy: str, part: float
) -> None:
    asked = world(seed, 25, policy, option)
    asked = replace(asked, jobs=scaled(asked.jobs, part))

    schedule = shared(asked, placement=placement)

    check_devices(schedule)
    check_that_all_end(asked, schedule)


def test_the_worlds_share_devices() -> None:
    """Guard the invariants: partial GPUs meet on devices, and every way to end occurs."""
    endings, shares, waited = set(), 0, 0
    for seed in range(60):
        asked = world(seed, 25, "srtf", "preempt")
        schedule = shared(replace(asked, jobs=scaled(asked.jobs, 0.7)))
        assert schedule.host_devices is not None
        endings |= set(schedule.ending.tolist())
        shares += int(((schedule.host_devices > 0) & (schedule.host_devices < 1000)).sum())
        waited += len(set(starts_of(schedule)) - set(starts_of(shared(asked, "pooled"))))
    assert endings == set(Ending)
    assert shares > 100
    assert waited > 0


def check_same_but_devices(one: Schedule, other: Schedule) -> None:
    for name in {field.name for field in fields(Schedule)} - {"workload", "machines", "host_devices"}:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option != "easy"])
@pytest.mark.parametrize("policy", sorted(QUEUE_POLICIES))
@settings(max_examples=examples(8))
@given(seed=SEEDS, one_each=st.booleans())
def test_whole_gpus_and_machines_of_one_are_as_pooled(policy: str, option: str, seed: int, one_each: bool) -> None:
    """Not with EASY: what a reservation leaves is intersected device by device, which may be less than pooled."""
    asked = world(seed, 25, policy, option)
    if one_each:
        # Pooled, a gang may ask for more than one GPU of a machine; here no machine has it.
        machines = tuple(replace(machine, gpus=min(machine.gpus, 1)) for machine in asked.machines)
        asked = replace(asked, machines=machines, jobs=scaled(asked.jobs, 0.5))
    else:
        asked = replace(asked, jobs=on_whole_gpus(scaled(asked.jobs, 4.0)))

    devices, pooled = shared(asked), shared(asked, "pooled")

    assert pooled.host_devices is None
    check_same_but_devices(devices, pooled)


def test_three_jobs_of_six_tenths_fit_two_gpus_pooled_and_not_by_devices() -> None:
    jobs = workload(*({"gpus": 0.6} for _ in range(3)))

    pooled = run(jobs, gpu_machines(2), Discipline(sharing="pooled"))
    devices = run(jobs, gpu_machines(2), Discipline(sharing="devices"))

    assert list(starts_of(pooled).values()) == [0.0, 0.0, 0.0]
    assert simulated(devices) == [
        (0, 0.0, 100.0, "completed"),
        (1, 0.0, 100.0, "completed"),
        (2, 100.0, 200.0, "completed"),
    ]
    assert devices.host_devices is not None
    assert devices.host_devices.tolist() == [[600, 0], [0, 600], [600, 0]]


def test_more_than_one_gpu_is_whole_ones() -> None:
    jobs = workload({"gpus": 1.5, "granted": (0.0, 0.0, 0.7)}, {"gpus": 1.5}, {"gpus": 0.5}, {"gpus": 0.4})

    found = run(jobs, gpu_machines(3), Discipline(sharing="devices"))

    assert found.workload.request_units[:, 2].tolist() == [2000, 2000, 500, 400]
    assert found.workload.granted_units[:, 2].tolist() == [700, 2000, 500, 400]
    assert found.host_devices is not None
    # The last goes where least is left; beside the first only 0.3 is.
    assert found.host_devices.tolist() == [[700, 0, 0], [0, 1000, 1000], [500, 0, 0], [400, 0, 0]]
    assert list(starts_of(found).values()) == [100.0, 100.0, 0.0, 0.0]


def test_a_gang_that_no_devices_could_hold_never_fits() -> None:
    jobs = workload({"gpus": 0.6, "instances": 3}, {"gpus": 1.5}, {"gpus": 2.5})

    found = [run(jobs, gpu_machines(2), Discipline(sharing=sharing)).never_fits for sharing in ("pooled", "devices")]

    assert [each.tolist() for each in found] == [[False, False, True], [True, False, True]]


def test_a_job_is_stopped_where_pooled_gpus_would_have_done() -> None:
    jobs = workload({"gpus": 0.6, "run": 1000.0}, {"gpus": 0.6, "run": 900.0}, {"at": 50.0, "gpus": 0.7, "run": 10.0})
    rules = Discipline(policy="srtf", quantum_s=20.0, sharing="devices")

    devices, pooled = (run(jobs, gpu_machines(2), replace(rules, sharing=s)) for s in ("devices", "pooled"))

    assert simulated(pooled)[2] == (2, 50.0, 60.0, "completed")
    assert Ending.PREEMPTED not in pooled.ending
    assert simulated(devices)[1] == (0, 0.0, 50.0, "preempted")
    assert simulated(devices)[2:] == [(2, 50.0, 60.0, "completed"), (0, 60.0, 1010.0, "completed")]


def test_backfill_keeps_the_device_that_the_head_is_promised() -> None:
    jobs = workload(
        {"gpus": 0.6, "run": 100.0},
        {"gpus": 0.6, "run": 50.0},
        {"at": 1.0, "gpus": 1.0, "run": 30.0},
        {"at": 1.0, "gpus": 0.4, "run": 500.0},
        {"at": 1.0, "gpus": 0.4, "run": 500.0},
        {"at": 1.0, "gpus": 0.4, "run": 49.0},
    )

    found = run(jobs, gpu_machines(2), Discipline(backfill="easy", sharing="devices"))

    # The head is promised the second GPU at 50 s: of the long ones only that beside the first job starts, and the
    # short one, which ends in time.
    assert starts_of(found) == {0: 0.0, 1: 0.0, 3: 1.0, 5: 1.0, 2: 50.0, 4: 80.0}
    assert found.host_devices is not None
    assert found.host_devices[2:5].tolist() == [[400, 0], [0, 400], [0, 1000]]


def test_a_sharing_nobody_knows_is_refused() -> None:
    with pytest.raises(BadInput, match="sharing: found 'split', expected one of pooled, devices"):
        simulate(workload(), gpu_machines(1), Discipline(sharing="split"))  # type: ignore[arg-type]  # on purpose

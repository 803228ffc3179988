"""Why jobs wait, until when, and changes that start them: every one is applied here and decided on anew."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.cluster import Machine
from scheduler_core.decisions import Hold, place_queue
from scheduler_core.errors import BadInput
from scheduler_core.explain import Change, Explained, explain_waiting
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import Discipline
from scheduler_core.round import round_of
from scheduler_core.scene import Scene
from scheduler_core.snapshot import MachineState, QueuedJob, Snapshot
from scheduler_core.types import Request
from tests.examples import examples
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, starts_of, workload
from tests.scheduler_core.snapshots import asked, machine, runs, snapshots
from tests.scheduler_core.test_decisions import POOLED, job


def starts(snapshot: Snapshot, job_id: str) -> bool:
    return any(each.job_id == job_id and bool(each.spots) for each in place_queue(snapshot))


def changed(snapshot: Snapshot, change: Change) -> Snapshot:
    """Return the snapshot with one change, and nothing else."""
    jobs = tuple(change.job if each.job_id == change.job.job_id else each for each in snapshot.jobs)
    return replace(snapshot, jobs=jobs)


def check_changes(snapshot: Snapshot) -> None:
    explained = explain_waiting(snapshot, None, 10)
    assert {each.job_id for each in explained} == {each.job_id for each in place_queue(snapshot) if not each.spots}
    for each in explained:
        assert each.text
        for change in each.changes:
            assert starts(changed(snapshot, change), each.job_id), change


@given(snapshots(POOLED))
@settings(max_examples=examples(25), deadline=None)
def test_every_change_applied_alone_starts_the_job(snapshot: Snapshot) -> None:
    check_changes(snapshot)


@pytest.mark.slow
@given(snapshots(tuple(sorted(PLACEMENTS))))
@settings(max_examples=examples(40), deadline=None)
def test_every_change_starts_the_job_under_every_placement(snapshot: Snapshot) -> None:
    check_changes(snapshot)


def explained(*jobs: QueuedJob, **fields: object) -> dict[str, Change]:
    found = explain_waiting(Snapshot(**{"machines": (machine("a"), machine("b")), "jobs": jobs, **fields}), None, 1)
    return {change.field: change for change in found[0].changes}


def test_the_smallest_change_of_each_kind_is_found() -> None:
    machines = (machine("a", gpu_type="T4"), machine("b", gpu_type="T4"), machine("c", gpu_type="V100"))
    running = (runs("r", "a", asked(cores=10), 100.0), runs("s", "b", asked(cores=12), 50.0))

    changes = explained(job(request=asked(cores=8), gpu_type="T4", instances=2), machines=machines, running=running)

    assert changes["cpu_cores"].job.request.cpu_cores == 4.0
    assert changes["gpu_type"].job.gpu_type == "V100"
    assert set(changes) == {"cpu_cores", "gpu_type"}


def test_one_unit_less_of_a_change_does_not_start_the_job() -> None:
    running = (runs("r", "a", asked(cores=9.5, mem=4)), runs("s", "b", asked(cores=12)))
    waiting = job(request=asked(cores=8))
    snapshot = Snapshot(machines=(machine("a"), machine("b")), running=running, jobs=(waiting,))

    [found] = explain_waiting(snapshot, None, 1)
    [change] = found.changes

    assert change.job.request.cpu_cores == 6.5
    assert (found.must_end, math.isinf(found.room_in_s)) == (("r",), True)
    more = replace(change, job=replace(waiting, request=replace(waiting.request, cpu_cores=6.501)))
    assert not starts(changed(snapshot, more), "j")


def test_fewer_instances_any_machine_and_smaller_gpus_are_changes() -> None:
    small, large = machine("a", device_mem_gib=16.0), machine("b", device_mem_gib=32.0)
    running = (runs("r", "b", asked(gpus=4)),)

    gang = explained(job(request=asked(gpus=2), instances=3), machines=(small, large), running=running)
    pinned = explained(job(machines=("b",)), machines=(small, large), running=running)
    memory = explained(job(device_mem_gib=24.0), machines=(small, large), running=running)

    assert gang["instances"].job.instances == 2
    assert pinned["machines"].job.machines == ()
    assert memory["device_mem_gib"].job.device_mem_gib == 16.0


def test_the_largest_smaller_gpu_memory_with_room_is_found() -> None:
    machines = (machine("a"), machine("b", device_mem_gib=16.0), machine("c", device_mem_gib=32.0))
    full = [runs(f"on {name}", name, asked(gpus=4)) for name in "bc"]

    known = explained(job(device_mem_gib=40.0), machines=machines[1:], running=(full[1],))
    unknown = explained(job(device_mem_gib=40.0), machines=machines, running=tuple(full))

    assert known["device_mem_gib"].job.device_mem_gib == 16.0
    assert unknown["device_mem_gib"].job.device_mem_gib == 0.0


def test_a_gang_may_need_another_gpu_type_beside_its_own() -> None:
    machines = (machine("a", gpu_type="T4"), machine("b", gpu_type="V100"))
    gang = explained(job(request=asked(gpus=4), gpu_type="T4", instances=2), machines=machines)

    assert gang["gpu_type"].job.gpu_type == "T4|V100"


def test_the_room_of_jobs_behind_counts_since_the_job_comes_before_them() -> None:
    running = (runs("r", "a", asked(cores=8)),)
    jobs = (job("first", request=asked(cores=10)), job("behind", request=asked(cores=6)))

    changes = explained(*jobs, machines=(machine("a"),), running=running)

    assert changes["cpu_cores"].job.request.cpu_cores == 8.0


def test_a_job_larger_than_the_cluster_never_starts_as_it_is() -> None:
    snapshot = Snapshot(machines=(machine("a"),), jobs=(job(request=asked(gpus=6)),))

    [found] = explain_waiting(snapshot, ["j"], 1)

    assert (str(found.hold), found.place, math.isinf(found.room_in_s)) == ("never", 0, True)
    assert [(change.field, change.job.request.gpus) for change in found.changes] == [("gpus", 4.0)]


def test_only_jobs_of_the_queue_are_explained_and_those_that_start_are_left_out() -> None:
    snapshot = Snapshot(machines=(machine("a"),), running=(runs("r", "a", asked()),), jobs=(job(),))

    assert explain_waiting(snapshot, ["j"], 10) == []
    with pytest.raises(BadInput, match=r"^explain\.0: found 'r'"):
        explain_waiting(snapshot, ["r"], 10)


def test_easy_backfill_allows_only_changes_that_do_not_delay_the_head() -> None:
    running = (runs("r", "a", asked(cores=4, gpus=2), 100.0),)
    jobs = (job("head", request=asked(gpus=4)), job("long", request=asked(gpus=1), run_time_s=1000.0))
    snapshot = Snapshot(machines=(machine("a"),), running=running, jobs=jobs, rules=Discipline(backfill="easy"))

    head, behind = explain_waiting(snapshot, None, 10)

    assert (str(behind.hold), behind.head, behind.changes) == ("reservation", "head", ())
    assert [change.field for change in head.changes] == ["gpus"]


def gang(gpus: float, lasts_s: float = 100.0, instances: int = 1, **fields: Any) -> QueuedJob:
    request = Request(cpu_cores=1.0, mem_gib=0.0, gpus=gpus)
    return QueuedJob(job_id="", request=request, instances=instances, run_time_s=lasts_s, **fields)


def queue(machines: tuple[Machine, ...], *gangs: QueuedJob, closed: tuple[int, ...] = (), **rules: Any) -> Snapshot:
    """Return gangs that wait, named by their place, for the first machines listed with room."""
    states = tuple(MachineState(machine=machine, closed=at in closed) for at, machine in enumerate(machines))
    jobs = tuple(replace(each, job_id=str(serial)) for serial, each in enumerate(gangs))
    return Snapshot(machines=states, jobs=jobs, rules=Discipline(**{"placement": "first_fit", **rules}))


def why_of(snapshot: Snapshot, serial: int) -> Explained:
    [found] = explain_waiting(snapshot, [str(serial)], 1)
    return found


def test_free_gpus_on_the_wrong_machines_are_fragmentation() -> None:
    why = why_of(queue(gpu_machines(4, 4), gang(3, 50.0), gang(3, 80.0), gang(2, 10.0)), 2)

    assert (why.hold, why.hosted) == (Hold.ROOM, 0)
    assert (why.must_end, why.room_in_s, why.expected_wait_s) == (("0",), 50.0, 50.0)
    assert why.text == (
        "Job 2 is number 1 of 1 in the queue: the job does not fit; 2 of 2 machines: not enough GPUs. "
        "Enough is free in total, but not on the same machines or devices: it is fragmented. "
        "It fits once these running jobs have ended: 0 (expected in 50 s). Its start is expected in 50 s."
    )


def test_only_runs_that_are_needed_must_end() -> None:
    # m0: 1 (2 GPUs, ends at 10) and 0 (2, at 90); m1: 2 (4, at 50). A gang of 4 needs m1 alone, and not job 1's end.
    why = why_of(queue(gpu_machines(4, 4), gang(2, 90.0), gang(2, 10.0), gang(4, 50.0), gang(4)), 3)

    assert (why.must_end, why.room_in_s) == (("2",), 50.0)


def test_the_expected_wait_lets_those_before_it_start_first() -> None:
    snapshot = queue(gpu_machines(4), gang(4, 50.0), gang(4, 70.0), gang(1, 10.0), gang(4, 1.0))

    # Job 2 has room when 0 ends, but 1 takes all of it: it starts when that ends.
    assert [why_of(snapshot, serial).expected_wait_s for serial in (1, 2, 3)] == [50.0, 120.0, 130.0]
    assert why_of(snapshot, 2).room_in_s == 50.0


def test_an_end_without_a_prediction_is_unknown() -> None:
    why = why_of(queue(gpu_machines(4), gang(4, math.nan), gang(4)), 1)

    assert (why.must_end, why.room_in_s, why.expected_wait_s) == (("0",), math.inf, math.inf)
    assert "at an unknown time" in why.text


def test_machines_of_other_types_and_closed_machines_are_counted_apart() -> None:
    machines = tuple(
        Machine(name=str(at), cpu_cores=8, mem_gib=8, gpus=4, gpu_type=kind)
        for at, kind in enumerate(["T4", "T4", "P100"])
    )
    why = why_of(queue(machines, gang(4, instances=2, gpu_type="T4"), closed=(1,)), 0)

    assert (why.must_end, why.hosted, why.short) == ((), 1, {"gpu_type": 1, "closed": 1})
    assert why.expected_wait_s == math.inf
    assert "1 of 2 instances fit" in why.text
    assert "machines must come up" in why.text


@pytest.mark.parametrize(
    ("behind", "rules", "hold"),
    [
        ([gang(1)], {"overtakes": 0}, Hold.OVERTAKES),
        # The head takes all at 100; a job behind it would run longer.
        ([gang(1, 101.0)], {"backfill": "easy"}, Hold.RESERVATION),
        ([gang(4), gang(1, 1.0)], {"backfill": "easy", "backfill_depth": 1}, Hold.DEPTH),
        ([gang(1, 500.0)], {"backfill": "easy", "backfill_depth": 1}, Hold.RESERVATION),
    ],
)
def test_the_rule_that_holds_a_job_is_named_with_the_head(
    behind: list[QueuedJob], rules: dict[str, Any], hold: Hold
) -> None:
    why = why_of(queue(gpu_machines(4), gang(3, 100.0), gang(4), *behind, **rules), 1 + len(behind))

    assert (why.hold, why.head, why.room_in_s) == (hold, "1", 0.0)
    assert "job 1" in why.text


def test_a_gang_that_can_never_fit_is_measured_by_the_empty_cluster() -> None:
    kinds = tuple(Machine(name=kind, cpu_cores=96, mem_gib=512, gpus=8, gpu_type=kind) for kind in ("T4", "P100"))
    why = why_of(queue(kinds, gang(4.0, instances=3, gpu_type="T4")), 0)

    assert (why.hold, why.place, why.must_end, why.expected_wait_s) == (Hold.NEVER, 0, (), math.inf)
    assert (why.hosted, why.instances) == (2, 3)
    assert "Job 0 can never start: the job exceeds the empty cluster" in why.text


SIZES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 90)), min_size=1, max_size=12)


def gangs_of(sizes: list[tuple[int, int, int]]) -> list[QueuedJob]:
    return [gang(gpus, float(lasts), n, user=str(at % 3)) for at, (gpus, n, lasts) in enumerate(sizes)]


@given(SIZES, st.sampled_from([{}, {"overtakes": 0}, {"overtakes": 2}, {"backfill": "easy"}, {"policy": "drf"}]))
@settings(max_examples=examples(60), deadline=None)
def test_what_is_said_comes_true(sizes: list[tuple[int, int, int]], rules: dict[str, Any]) -> None:
    """Let the named jobs end, and not one fewer: then the gang fits; one that a rule holds fits already."""
    snapshot = queue(gpu_machines(4, 4), *gangs_of(sizes), **rules)
    after = round_of(Scene(snapshot))
    for why in explain_waiting(snapshot, None, 20):
        demand, room = after.scene.demand(snapshot.jobs[int(why.job_id)]), after.room
        if why.hold == Hold.NEVER:
            continue
        assert room.fits(demand) == (why.hold != Hold.ROOM)
        assert why.expected_wait_s >= why.room_in_s
        for ended in why.must_end:
            assert not room.fits(demand), "every named end is needed"
            room = room.with_([after.allocation(int(ended))])
        assert room.fits(demand)


@given(SIZES)
@settings(max_examples=examples(40), deadline=None)
def test_the_last_in_the_queue_starts_as_expected(sizes: list[tuple[int, int, int]]) -> None:
    rows = [{"gpus": gpus, "cores": 1, "instances": n, "run": float(lasts)} for gpus, n, lasts in sizes]
    starts = starts_of(run(workload(*rows), gpu_machines(4, 4), Discipline(placement="first_fit")))
    waits = [each for each in explain_waiting(queue(gpu_machines(4, 4), *gangs_of(sizes)), None, 20) if each.place]
    for why in waits[-1:]:
        assert why.expected_wait_s == starts[int(why.job_id)]

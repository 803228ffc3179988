"""Why jobs of a snapshot wait, and changes that start them: every one is applied here and decided on anew."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings

from scheduler_core.changes import Change, explain_waiting
from scheduler_core.decisions import place_queue
from scheduler_core.errors import BadInput
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import Discipline
from scheduler_core.snapshot import QueuedJob, Snapshot
from tests.examples import examples
from tests.scheduler_core.snapshots import asked, machine, runs, snapshots
from tests.scheduler_core.test_decisions import POOLED, job


def starts(snapshot: Snapshot, job_id: str) -> bool:
    return any(each.job_id == job_id and bool(each.spots) for each in place_queue(snapshot))


def changed(snapshot: Snapshot, change: Change) -> Snapshot:
    """Return the snapshot with one change, and nothing else."""
    jobs = tuple(change.job if each.job_id == change.job.job_id else each for each in snapshot.jobs)
    left = tuple(each for each in snapshot.running if each.job_id not in change.ended)
    return replace(snapshot, jobs=jobs, running=left)


def check_changes(snapshot: Snapshot) -> None:
    explained = explain_waiting(snapshot, None, 10)
    assert {each.why.job_id for each in explained} == {each.job_id for each in place_queue(snapshot) if not each.spots}
    for each in explained:
        assert each.why.text
        for change in each.changes:
            assert starts(changed(snapshot, change), each.why.job_id), change


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
    assert (changes["wait"].ended, changes["wait"].in_s) == (("s",), 50.0)
    assert set(changes) == {"cpu_cores", "gpu_type", "wait"}


def test_one_unit_less_of_a_change_does_not_start_the_job() -> None:
    running = (runs("r", "a", asked(cores=9.5, mem=4)), runs("s", "b", asked(cores=12)))
    waiting = job(request=asked(cores=8))
    snapshot = Snapshot(machines=(machine("a"), machine("b")), running=running, jobs=(waiting,))

    [found] = explain_waiting(snapshot, None, 1)
    change, wait = found.changes

    assert (found.nearest, change.job.request.cpu_cores) == ("a", 6.5)
    assert (wait.field, wait.ended, math.isinf(wait.in_s)) == ("wait", ("r",), True)
    assert found.missing == replace(asked(), cpu_cores=1.5, mem_gib=0.0, gpus=0.0)
    more = replace(change, job=replace(waiting, request=replace(waiting.request, cpu_cores=6.501)))
    assert not starts(changed(snapshot, more), "j")


def test_a_job_that_lacks_two_resources_is_fitted_to_the_nearest_machine() -> None:
    running = (runs("r", "a", asked(cores=10, gpus=2)), runs("s", "b", asked(cores=14, gpus=4)))

    changes = explained(job(request=asked(cores=8, gpus=4)), running=running)

    assert set(changes) == {"request", "wait"}
    assert changes["request"].job.request == asked(cores=6, gpus=2)


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

    assert (str(found.why.hold), found.why.place, math.isinf(found.why.room_in_s)) == ("never", 0, True)
    assert [(change.field, change.job.request.gpus) for change in found.changes] == [("gpus", 4.0)]


def test_jobs_are_named_by_their_ids() -> None:
    running = (runs("train-1", "a", asked(gpus=4), 60.0),)
    snapshot = Snapshot(machines=(machine("a"),), running=running, jobs=(job("eval-2", request=asked(gpus=1)),))

    [found] = explain_waiting(snapshot, None, 10)

    assert found.why.must_end == ("train-1",)
    assert "Job eval-2 is number 1 of 1" in found.why.text
    assert "have ended: train-1 (expected in 60 s)" in found.why.text


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

    assert (str(behind.why.hold), behind.why.head, behind.changes) == ("reservation", "head", ())
    assert [change.field for change in head.changes] == ["gpus", "wait"]

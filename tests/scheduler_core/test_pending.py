"""Why a job waits: which resource, on how many machines, what would have to end, which rule, and when."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand, Machine, paper_machines
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting
from scheduler_core.pending import Hold, explain_pending
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import Scheduler
from scheduler_core.types import Job, Request
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, starts_of, workload


def gang(
    serial: int, gpus: int, predicted_s: float = 100.0, instances: int = 1, cores: int = 1, **fields: Any
) -> Waiting:
    demand = Demand(units=(cores * 1000, 0, gpus * 1000), instances=instances, gpu_type=fields.pop("gpu_type", None))
    return Waiting(serial=serial, arrived_s=0.0, request=demand, granted=demand, predicted_s=predicted_s, **fields)


def after_a_round(machines: tuple[Machine, ...], *gangs: Waiting, **rules: Any) -> Scheduler:
    scheduler = Scheduler(machines, Discipline(**{"placement": "first_fit", **rules}))
    for each in gangs:
        scheduler.enqueue(each)
    scheduler.round(0.0)
    return scheduler


def test_free_gpus_on_the_wrong_machines_are_fragmentation() -> None:
    scheduler = after_a_round(gpu_machines(4, 4), gang(0, 3, 50.0), gang(1, 3, 80.0), gang(2, 2, 10.0))

    why = explain_pending(scheduler, 2, 20.0)

    assert (why.hold, why.fragmented, why.hosted) == (Hold.ROOM, True, 0)
    gpus = next(shortage for shortage in why.shortages if shortage.resource == "gpus")
    assert (gpus.short_machines, gpus.machines, gpus.free, gpus.wanted, gpus.binds) == (2, 2, 2.0, 2.0, True)
    assert not next(shortage for shortage in why.shortages if shortage.resource == "cpu_cores").binds
    assert (why.must_end, why.room_in_s, why.expected_wait_s) == ((0,), 30.0, 30.0)
    assert str(why) == (
        "Job 2 is number 1 of 1 in the queue. 0 of its 1 instances would fit now. "
        "GPUs: an instance requests 2, more than is free on 2 of 2 machines; the gang requests 2, and 2 are "
        "free in total. "
        "Enough is free in total, but not on the same machines: it is fragmented. "
        "It fits once these running jobs have ended: 0 (expected in 30 s). Its start is expected in 30 s."
    )


def test_the_resource_that_binds_is_named_even_if_it_is_not_the_gpu() -> None:
    scheduler = after_a_round(gpu_machines(4, cpu_cores=8), gang(0, 1, cores=6), gang(1, 1, cores=4))

    why = explain_pending(scheduler, 1, 0.0)

    assert [shortage.resource for shortage in why.shortages if shortage.binds] == ["cpu_cores"]
    assert not why.fragmented
    assert "Cores: an instance requests 4, more than is free on 1 of 1 machines; the gang requests 4, and 2 are" in str(
        why
    )
    assert "GPUs:" not in str(why)


def test_only_runs_that_are_needed_must_end() -> None:
    # m0: 1 (2 GPUs, ends at 10) and 0 (2, at 90); m1: 2 (4, at 50). A gang of 4 needs m1 alone, and not job 1's end.
    scheduler = after_a_round(gpu_machines(4, 4), gang(0, 2, 90.0), gang(1, 2, 10.0), gang(2, 4, 50.0), gang(3, 4))

    why = explain_pending(scheduler, 3, 5.0)

    assert (why.must_end, why.room_in_s) == ((2,), 45.0)


def test_a_gang_counts_its_instances() -> None:
    scheduler = after_a_round(gpu_machines(4, 4), gang(0, 1, 30.0), gang(1, 2, instances=4))

    why = explain_pending(scheduler, 1, 0.0)

    assert (why.hosted, why.instances, why.must_end) == (3, 4, (0,))
    assert "3 of its 4 instances would fit now" in str(why)


def test_the_expected_wait_lets_those_before_it_start_first() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 4, 50.0), gang(1, 4, 70.0), gang(2, 1, 10.0), gang(3, 4, 1.0))

    assert explain_pending(scheduler, 1, 20.0).expected_wait_s == 30.0
    # It has room when 0 ends, but 1 takes all of it: it starts when that ends.
    assert explain_pending(scheduler, 2, 20.0).room_in_s == 30.0
    assert explain_pending(scheduler, 2, 20.0).expected_wait_s == 100.0
    assert explain_pending(scheduler, 3, 20.0).expected_wait_s == 110.0


def test_an_end_that_nobody_predicts_is_said_to_be_unknown() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 4, math.nan), gang(1, 4))

    why = explain_pending(scheduler, 1, 0.0)

    assert (why.must_end, why.room_in_s, why.expected_wait_s) == ((0,), math.inf, math.inf)
    assert "at an unknown time" in str(why)


def test_a_run_past_its_prediction_should_end_now() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 4, 10.0), gang(1, 4))

    assert explain_pending(scheduler, 1, 500.0).room_in_s == 0.0


def test_machines_of_other_types_and_machines_that_are_away_are_counted_apart() -> None:
    machines = tuple(
        Machine(name=str(at), cpu_cores=8, mem_gib=8, gpus=4, gpu_type=kind)
        for at, kind in enumerate(["T4", "T4", "P100"])
    )
    scheduler = Scheduler(machines, Discipline(match_gpu_type=True))
    scheduler.down(1)
    scheduler.enqueue(gang(0, 4, instances=2, gpu_type="T4"))
    scheduler.round(0.0)

    why = explain_pending(scheduler, 0, 0.0)

    assert (why.other_machines, why.away_machines, why.must_end, why.hosted) == (1, 1, (), 1)
    assert why.expected_wait_s == math.inf
    assert "machines must come up" in str(why)
    assert "Machines of another GPU type: 1. Machines it could use that are down: 1." in str(why)


def test_the_overtakes_bound_is_named_with_the_head() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 3), gang(1, 4), gang(2, 1), overtakes=0)

    why = explain_pending(scheduler, 2, 0.0)

    assert (why.place, why.waiting, why.hold, why.head, why.room_in_s) == (2, 2, Hold.OVERTAKES, 1, 0.0)
    assert "job 1 before it has been overtaken as often as allowed" in str(why)


def test_the_reservation_is_named_with_the_head() -> None:
    # The head takes all at 100; job 2 would run until 101 on a GPU of it, job 3 until 100 exactly.
    gangs = [gang(0, 3, 100.0), gang(1, 4), gang(2, 1, 101.0), gang(3, 1, 100.0)]
    scheduler = after_a_round(gpu_machines(4), *gangs, backfill="easy")

    assert list(scheduler.occupancy.running) == [0, 3]
    scheduler.release(3)
    why = explain_pending(scheduler, 2, 0.0)

    assert (why.hold, why.head) == (Hold.RESERVATION, 1)
    assert "delay job 1, which has a reservation" in str(why)


def test_standing_too_far_behind_for_backfill_is_named() -> None:
    gangs = [gang(0, 3, 100.0), gang(1, 4), gang(2, 4), gang(3, 1, 1.0)]
    scheduler = after_a_round(gpu_machines(4), *gangs, backfill="easy", backfill_depth=1)

    assert explain_pending(scheduler, 3, 0.0).hold == Hold.DEPTH


def test_the_last_that_backfill_looks_at_is_held_by_the_promise_not_by_the_depth() -> None:
    gangs = [gang(0, 3, 100.0), gang(1, 4), gang(2, 1, 500.0)]
    scheduler = after_a_round(gpu_machines(4), *gangs, backfill="easy", backfill_depth=1)

    assert explain_pending(scheduler, 2, 0.0).hold == Hold.RESERVATION


def test_a_job_that_nothing_holds_starts_in_the_next_round() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 4), gang(1, 4))
    scheduler.release(0)

    why = explain_pending(scheduler, 1, 9.0)

    assert (why.hold, why.must_end, why.room_in_s, why.expected_wait_s) == (Hold.NOTHING, (), 0.0, 0.0)
    assert "the next round starts it" in str(why)


def test_a_job_that_does_not_wait_is_refused() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 4), gang(1, 4))

    with pytest.raises(BadInput, match="found job 0, expected one of the 1 that wait"):
        explain_pending(scheduler, 0, 0.0)


def asking(gpus: float, *, instances: int = 1, gpu_type: str | None = None) -> Job:
    wanted = Request(cpu_cores=1.0, mem_gib=math.nan, gpus=gpus)
    return Job(job_id="j", trace="toy", task_type="ctr", request=wanted, instances=instances, gpu_type=gpu_type)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_job_that_can_never_fit_is_told_what_the_whole_cluster_has(rounds: int) -> None:
    scheduler = Scheduler(paper_machines())
    serial = scheduler.submit(asking(500.0), 0.0)
    for at in range(rounds):
        scheduler.round(float(at))

    why = explain_pending(scheduler, serial, 60.0)

    assert (why.hold, why.place, why.waiting, why.must_end, why.expected_wait_s) == (Hold.NEVER, 0, 0, (), math.inf)
    assert str(why) == (
        "Job 0 can never start: it requests more than the whole empty cluster has. "
        "GPUs: an instance requests 500, more than any of them has; the gang requests 500, and the whole "
        "cluster has 32."
    )


def test_a_gang_that_can_never_fit_is_measured_by_the_machines_of_its_type() -> None:
    kinds = [Machine(name=kind, cpu_cores=96, mem_gib=512, gpus=8, gpu_type=kind) for kind in ("T4", "P100")]
    scheduler = Scheduler(kinds, Discipline(match_gpu_type=True))
    serial = scheduler.submit(asking(4.0, instances=3, gpu_type="T4"), 0.0)
    scheduler.round(0.0)

    why = explain_pending(scheduler, serial, 0.0)

    assert (why.hosted, why.instances, why.other_machines) == (2, 3, 1)
    assert "GPUs: an instance requests 4; the gang requests 12, and all of its GPU type has 8." in str(why)


def test_a_queued_job_that_can_never_fit_is_answered_about_too() -> None:
    scheduler = Scheduler(gpu_machines(4))

    assert not scheduler.enqueue(gang(7, 5))
    assert explain_pending(scheduler, 7, 0.0).hold == Hold.NEVER


def test_a_job_that_no_round_has_looked_at_is_told_that_the_next_does() -> None:
    scheduler = after_a_round(gpu_machines(4), gang(0, 3), gang(1, 4))
    first, second = (scheduler.submit(asking(gpus), 5.0) for gpus in (1.0, 2.0))

    fits, waits = explain_pending(scheduler, first, 6.0), explain_pending(scheduler, second, 6.0)

    assert [(why.hold, why.place, why.waiting) for why in (fits, waits)] == [(Hold.ROUND, 2, 3), (Hold.ROUND, 3, 3)]
    assert (fits.room_in_s, waits.room_in_s) == (0.0, math.inf)
    assert str(waits) == (
        "Job 3 was submitted after the last round: the next round admits it. "
        "As requested, 0 of its 1 instances would fit now."
    )
    scheduler.round(7.0)
    assert explain_pending(scheduler, second, 8.0).hold == Hold.ROOM


@given(
    sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 90)), min_size=1, max_size=12),
    rules=st.sampled_from([{}, {"overtakes": 0}, {"overtakes": 2}, {"backfill": "easy"}, {"policy": "drf"}]),
)
def test_what_is_said_comes_true(sizes: list[tuple[int, int, int]], rules: dict[str, Any]) -> None:
    """Let the named jobs end, and not one fewer: then the gang fits; one that a rule holds fits already."""
    gangs = [gang(at, gpus, float(lasts), n, user=at % 3) for at, (gpus, n, lasts) in enumerate(sizes)]
    waiting = [one.serial for one in after_a_round(gpu_machines(4, 4), *gangs, **rules).queue]

    for serial in waiting:
        scheduler = after_a_round(gpu_machines(4, 4), *gangs, **rules)
        why = explain_pending(scheduler, serial, 0.0)
        demand = gangs[serial].demand

        assert scheduler.occupancy.room.fits(demand) == (why.hold != Hold.ROOM)
        assert why.expected_wait_s >= why.room_in_s
        for ended in why.must_end:
            assert not scheduler.occupancy.room.fits(demand), "every named end is needed"
            scheduler.release(ended)
        assert scheduler.occupancy.room.fits(demand)


@given(sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 90)), min_size=1, max_size=12))
def test_the_last_in_line_starts_when_it_was_told(sizes: list[tuple[int, int, int]]) -> None:
    gangs = [gang(at, gpus, float(lasts), n) for at, (gpus, n, lasts) in enumerate(sizes)]
    scheduler = after_a_round(gpu_machines(4, 4), *gangs)
    rows = [{"gpus": gpus, "cores": 1, "instances": n, "run": float(lasts)} for gpus, n, lasts in sizes]
    starts = starts_of(run(workload(*rows), gpu_machines(4, 4), Discipline(placement="first_fit")))

    for serial in [one.serial for one in scheduler.queue][-1:]:
        assert explain_pending(scheduler, serial, 0.0).expected_wait_s == starts[serial]

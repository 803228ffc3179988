"""Why a job waits where GPUs are shared by devices: what is free in total may be split over them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand
from scheduler_core.gangs import Waiting
from scheduler_core.pending import Hold, Pending, explain_pending
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import Scheduler
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, starts_of, workload

Gang = tuple[int, int, int]
"""Milli-GPUs, instances, seconds."""

GANGS = st.lists(
    st.tuples(st.sampled_from([0, 300, 400, 600, 1000, 2000]), st.integers(1, 3), st.integers(1, 90)),
    min_size=1,
    max_size=12,
)


def after_a_round(gangs: list[Gang], *gpus: int, **rules: Any) -> Scheduler:
    """Return a scheduler that has been handed gangs with a core for each instance."""
    scheduler = Scheduler(gpu_machines(*gpus), Discipline(**{"placement": "first_fit", "sharing": "devices", **rules}))
    for serial, (milli, instances, lasts_s) in enumerate(gangs):
        demand = Demand(units=(1000, 0, milli), instances=instances)
        scheduler.enqueue(Waiting(serial=serial, arrived_s=0.0, request=demand, granted=demand, predicted_s=lasts_s))
    scheduler.round(0.0)
    return scheduler


def asked(gangs: list[Gang], *gpus: int, **rules: Any) -> Pending:
    """Return what is said of the last gang at 20 s."""
    return explain_pending(after_a_round(gangs, *gpus, **rules), len(gangs) - 1, 20.0)


def test_free_in_sum_but_split_over_devices() -> None:
    why = asked([(600, 1, 80), (600, 1, 50), (700, 1, 10)], 2)

    assert (why.hold, why.fragmented, why.hosted) == (Hold.ROOM, True, 0)
    gpus = next(shortage for shortage in why.shortages if shortage.resource == "gpus")
    assert (gpus.free, gpus.wanted, gpus.short_machines, gpus.binds, gpus.split) == (0.8, 0.7, 1, True, True)
    assert (why.must_end, why.room_in_s, why.expected_wait_s) == ((1,), 30.0, 30.0)
    assert str(why) == (
        "Job 2 is number 1 of 1 in the queue. 0 of its 1 instances would fit now. "
        "GPUs: an instance requests 0.7 of one device, and no device of 1 of 1 machines has that free; the gang "
        "requests 0.7, and 0.8 are free in total, but split over devices. "
        "Enough is free in total, but split over devices: it is fragmented. "
        "It fits once these running jobs have ended: 1 (expected in 30 s). Its start is expected in 30 s."
    )


def test_whole_gpus_are_not_made_of_parts() -> None:
    why = asked([*[(600, 1, 80)] * 6, (1500, 1, 10)], 6)

    assert why.fragmented
    assert (
        "GPUs: an instance requests 2 idle devices, and 1 of 1 machines have fewer; the gang requests 2, and 2.4 "
        "are free in total, but split over devices."
    ) in str(why)


def test_too_few_gpus_are_too_few_and_not_split() -> None:
    why = asked([(600, 1, 80), (600, 1, 50), (1500, 1, 10)], 3)

    assert (why.fragmented, why.shortages[1].split) == (False, False)
    assert "GPUs: an instance requests 2, more than is free on 1 of 1 machines; the gang requests 2, and 1.8" in str(
        why
    )


def test_pooled_gpus_are_never_split() -> None:
    why = asked([(600, 1, 80), (600, 1, 50), (900, 1, 10)], 2, sharing="pooled")

    assert not any(shortage.split for shortage in why.shortages)
    assert "devices" not in str(why)


@given(gangs=GANGS, rules=st.sampled_from([{}, {"overtakes": 0}, {"backfill": "easy"}, {"policy": "drf"}]))
def test_what_is_said_comes_true(gangs: list[Gang], rules: dict[str, Any]) -> None:
    """Let the named jobs end, and not one fewer: then the gang fits; one that a rule holds fits already."""
    waiting = [one.serial for one in after_a_round(gangs, 3, 1, **rules).queue]

    for serial in waiting:
        scheduler = after_a_round(gangs, 3, 1, **rules)
        why = explain_pending(scheduler, serial, 0.0)
        [demand] = [one.demand for one in scheduler.queue if one.serial == serial]

        assert scheduler.occupancy.room.fits(demand) == (why.hold != Hold.ROOM)
        for ended in why.must_end:
            assert not scheduler.occupancy.room.fits(demand), "every named end is needed"
            scheduler.release(ended)
        assert scheduler.occupancy.room.fits(demand)


@given(gangs=GANGS)
def test_the_last_in_line_starts_when_it_was_told(gangs: list[Gang]) -> None:
    scheduler = after_a_round(gangs, 3, 1)
    rows = [{"gpus": milli / 1000, "cores": 1, "instances": n, "run": float(lasts)} for milli, n, lasts in gangs]
    rules = Discipline(placement="first_fit", sharing="devices")
    starts = starts_of(run(workload(*rows), gpu_machines(3, 1), rules))

    for serial in [one.serial for one in scheduler.queue][-1:]:
        assert explain_pending(scheduler, serial, 0.0).expected_wait_s == starts[serial]

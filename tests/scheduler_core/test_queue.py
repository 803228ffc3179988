"""The queue against sorting it anew: jobs that leave and join; users in a heap against ranking all after each start."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core import queue
from scheduler_core.cluster import Demand
from scheduler_core.gangs import Waiting
from scheduler_core.queue import NOTHING_HELD, JobQueue
from scheduler_core.queue_policies import QUEUE_POLICIES, QueuePolicy
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import Scheduler
from tests.scheduler_core.cases import job, machines, request

ONE = Demand(units=(0, 0, 1000), instances=1)
DRF = QUEUE_POLICIES["drf"]


def waiting(serial: int, arrived_s: float = 0.0, **fields: Any) -> Waiting:
    return Waiting(serial=serial, arrived_s=arrived_s, request=ONE, granted=ONE, **fields)


def serials(queued: JobQueue) -> list[int]:
    return [serial for _, serial, _ in queued.ranked(0.0)]


@pytest.mark.parametrize("few", [1, 1000], ids=["one by one", "in a new list"])
@given(priorities=st.lists(st.integers(0, 3), max_size=30), data=st.data())
def test_who_stays_is_in_order_whoever_leaves_and_comes_back(
    few: int, priorities: list[int], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(queue, "REBUILD_SHARE", few)
        queued = JobQueue(QUEUE_POLICIES["priority"], lambda: NOTHING_HELD)
        for serial, priority in enumerate(priorities):
            queued.join(waiting(serial, priority=priority))
        gone = data.draw(st.sets(st.sampled_from(range(len(priorities))))) if priorities else set()

        queued.leave(gone)
        stay = [serial for serial in range(len(priorities)) if serial not in gone]
        assert serials(queued) == sorted(stay, key=lambda serial: (-priorities[serial], serial))

        for serial in gone:
            queued.join(waiting(serial, priority=9.0))
        assert serials(queued)[: len(gone)] == sorted(gone)
        assert len(queued) == len(priorities)


JOBS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([0.0, 1.0, 2.0, 4.0]),
        st.sampled_from([0.25, 1.0, 3.0, 8.0]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=25,
)
"""User, when it came, GPUs, instances."""


@pytest.mark.parametrize(
    "rules",
    [{}, {"aging": 0.125}, {"overtakes": 2}, {"backfill": "easy", "backfill_depth": 4}],
    ids=["none", "aging", "overtakes", "easy"],
)
@given(first=JOBS, later=JOBS, ends=st.sets(st.integers(0, 24)))
def test_users_by_a_heap_start_as_ranking_all_after_each_start_does(
    rules: dict[str, Any], first: list[Any], later: list[Any], ends: set[int]
) -> None:
    def rounds(policy: QueuePolicy) -> list[list[tuple[int, Any]]]:
        one = Scheduler(machines(count=3, cpu_cores=64.0, mem_gib=64.0, gpus=4), Discipline(policy=policy, **rules))
        done = []
        for now_s, jobs in ((4.0, first), (8.0, later)):
            for at, (user, came_s, gpus, instances) in enumerate(jobs):
                one.submit(job(str(at), request(1, 1, gpus), user=user, instances=instances), now_s - came_s)
            started = one.round(now_s).started
            done.append([(run.waiting.serial, run.allocation) for run in started])
            for serial in ends & set(one.occupancy.running):
                one.release(serial)
        return done

    assert rounds(DRF) == rounds(replace(DRF, by_user=False))


def test_under_users_only_the_first_jobs_are_asked_for_their_keys() -> None:
    asked = []

    def counted(job: Waiting, *rest: Any) -> float:
        asked.append(job.serial)
        return DRF.key(job, *rest)

    one = Scheduler(
        machines(count=8, cpu_cores=64.0, mem_gib=64.0, gpus=8), Discipline(policy=replace(DRF, key=counted))
    )
    for serial in range(40):
        one.submit(job(str(serial), request(1, 1, 1), user=str(serial % 4)), 0.0)

    assert len(one.round(0.0).started) == 40
    # Once as they join, and once as each becomes its user's first.
    assert len(asked) == 2 * 40

"""The heaps of the compiled loop against heapq and sorted."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.engine.compiled.heaps import heaped, popped, put_end, take_end
from pipelines.simulation.engine.compiled.waiting import put, smallest_gpus, take
from scheduler_core.kernels.records import ENTRY, NONE
from tests.scheduler_core.kernels import records

NUMBERS = st.one_of(st.integers(0, 3).map(float), st.just(float("inf")))
"""Few, so that ties are common."""


@given(ranks=st.lists(NUMBERS, min_size=1, max_size=40), steps=st.lists(st.booleans(), max_size=120))
def test_waiting_jobs_leave_by_rank_then_serial(ranks, steps):
    queue = records.queue(ranks)
    waiting, ahead, left = [], list(range(len(ranks))), []
    for joins in steps:
        if joins and ahead:
            job = ahead.pop()
            put(queue, 1, job)
            heapq.heappush(waiting, (ranks[job], job))
        elif waiting:
            left.append((heapq.heappop(waiting)[1], take(queue, 1, 0)))
            ahead.insert(0, left[-1][0])
    while waiting:
        left.append((heapq.heappop(waiting)[1], take(queue, 1, 0)))
    assert [expected for expected, _ in left] == [found for _, found in left]
    assert queue.tally["waiting"][0] == queue.tally["filled"][0] == 0
    assert queue.buckets["top"][0] == NONE


def test_the_smallest_gang_is_known_while_jobs_come_and_go():
    queue = records.queue([0.0, 1.0])
    assert smallest_gpus(queue) == 0
    put(queue, 1, 0)
    assert smallest_gpus(queue) == 1000
    take(queue, 1, 0)
    assert smallest_gpus(queue) == 0


@given(ends_s=st.lists(NUMBERS, min_size=1, max_size=40), data=st.data())
def test_runs_end_by_time_then_start_and_any_can_be_removed(ends_s, data):
    queue = records.queue([0.0] * len(ends_s))
    log = records.log(queue, ends_s)
    for run in range(len(ends_s)):
        put_end(log, queue.jobs, run, run)
    there = [(end_s, run) for run, end_s in enumerate(ends_s)]
    while there:
        heapq.heapify(there)
        assert (log.ends["end_s"][0], log.ends["run"][0]) == there[0]
        gone = data.draw(st.sampled_from(there))
        take_end(log, queue.jobs, len(there), queue.jobs["place"][gone[1]])
        there.remove(gone)


@given(values=st.lists(NUMBERS, min_size=1, max_size=40))
def test_picks_pop_in_order_of_value_then_tie(values):
    picks = np.zeros(len(values), dtype=ENTRY)
    picks["value"], picks["tie"] = values, np.arange(len(values))[::-1]
    heaped(picks, len(values))
    for left in range(len(values), 0, -1):
        assert popped(picks, left) == left - 1
    found = list(zip(picks["value"].tolist(), picks["tie"].tolist(), strict=True))
    assert found == sorted(found, reverse=True)

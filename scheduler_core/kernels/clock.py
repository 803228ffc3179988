"""The event loop: handle the events of a moment, then run one scheduling round; `enter` starts with running jobs.

The loop returns when the log of runs is full, and is called again with a longer log. Rounds with backfill or preemption
are in their own modules; the simple rounds are here. Free capacity never grows within a simple round, so a bucket (jobs
of equal demand) that did not fit is not tried again in that round.
"""

import math

from scheduler_core.kernels.backfill import easy_round
from scheduler_core.kernels.heaps import popped
from scheduler_core.kernels.kernel import by_reference, kept, kernel
from scheduler_core.kernels.preemption import preempting_round
from scheduler_core.kernels.rooms import copied, fits_free, missing_in
from scheduler_core.kernels.sharing import aim
from scheduler_core.kernels.starts import (
    COMPLETED,
    FAILED,
    KILLED,
    RUNNING,
    key_of,
    start,
    start_chosen,
    stop,
    wait,
)
from scheduler_core.kernels.state import NONE, Placed, Room, State
from scheduler_core.kernels.waiting import next_offer, offer_again, take
from scheduler_core.types import IntArray

__all__ = ["AIM", "DONE", "LOG_FULL", "advance", "aim_at_goal", "enter"]


@kernel
def _tick_s(now_s: float, quantum_s: float) -> float:
    """Return the next preemption check: the first whole multiple of the quantum after now."""
    number = math.floor(now_s / quantum_s)
    while number * quantum_s <= now_s:
        number += 1
    return float(number * quantum_s)


@kernel
def next_end(state: State) -> float:
    """Return when the next run ends; infinity if none runs."""
    log, tally = state.log, state.queue.tally[0]
    while tally.ends > 0 and log.runs[log.ends[0].what].ending != RUNNING:
        tally.ends = popped(log.ends, tally.ends)  # a run that was stopped before its planned end
    return float(log.ends[0].value) if tally.ends > 0 else math.inf


@kernel
def next_moment(state: State) -> float:
    """Return the time of the next event or preemption check; infinity if nothing more happens."""
    tally, jobs = state.queue.tally[0], state.queue.jobs
    moment_s = next_end(state)
    if state.rules.preempting and tally.running > 0 and tally.waiting > 0:
        moment_s = min(moment_s, _tick_s(tally.now_s, state.rules.quantum_s))
    if tally.arrivals < len(jobs):
        moment_s = min(moment_s, jobs[tally.arrivals].arrive_s)
    return float(moment_s)


@kernel
def end_runs(state: State) -> None:
    """End the runs whose planned end has come; killed jobs enter the queue again with their full request."""
    queue, log, tally = state.queue, state.log, state.queue.tally[0]
    while next_end(state) <= tally.now_s:
        number = log.ends[0].what
        row = queue.jobs[log.runs[number].job]
        if row.dies and not row.full:
            job = stop(state, number, KILLED)
            row.full = True
            row.left_s = row.run_s
            row.attained_s = 0.0
            row.owed_s = 0.0
            wait(state.rules, queue, len(state.cluster.away), job)
        else:
            stop(state, number, FAILED if row.fails else COMPLETED)
            row.finished_s = tally.now_s


@kernel
def admit(state: State) -> None:
    """Add the jobs that have arrived to the queue; mark jobs that do not fit even the empty cluster."""
    queue, tally = state.queue, state.queue.tally[0]
    while tally.arrivals < len(queue.jobs) and queue.jobs[tally.arrivals].arrive_s <= tally.now_s:
        job = tally.arrivals
        tally.arrivals += 1
        if queue.buckets[queue.jobs[job].full_bucket].possible:
            wait(state.rules, queue, len(state.cluster.away), job)
        else:
            queue.jobs[job].never_fits = True


@kernel
def simple_round(state: State) -> None:
    """Start every job that fits, in queue order, until `overtakes` jobs have passed the head, if that is limited.

    The head is the first job that does not fit. Starts that passed it in earlier rounds count too. Without a limit,
    buckets that are known not to fit are left out.
    """
    queue, cluster = state.queue, state.cluster
    tally, most = queue.tally[0], state.rules.overtakes
    tally.offers = 0
    for place in range(tally.filled):
        if most >= 0 or fits_free(cluster, queue, queue.filled[place]):
            offer_again(state, queue.filled[place])
    head = NONE
    at = next_offer(state)
    while at != NONE and (most < 0 or head == NONE or tally.overtaken < most):
        if fits_free(cluster, queue, at):
            start(state, take(queue, len(cluster.away), at))
            offer_again(state, at)
            if head != NONE:
                tally.overtaken += 1
        elif head == NONE:
            head = queue.buckets[at].top
            if tally.head != head:
                tally.overtaken = 0
        at = next_offer(state)
    tally.head = head


@kernel
def _has_room(state: State) -> bool:
    """Return whether the log is long enough if all waiting jobs start in one round."""
    tally, log = state.queue.tally[0], state.log
    return bool(tally.runs + tally.waiting < len(log.runs) and tally.hosts + tally.waiting_hosts <= len(log.hosts))


@kernel
def judge(state: State) -> None:
    """Mark the buckets whose jobs fit the empty cluster; jobs of the other buckets can never start."""
    queue, cluster = state.queue, state.cluster
    for at in range(len(queue.buckets)):
        queue.buckets[at].possible = missing_in(cluster, cluster.empty, queue, at) == 0


DONE = 0
LOG_FULL = 1
AIM = 2
"""Why `advance` returns."""


@kept
def advance(state: State) -> int:
    """Simulate until nothing more happens before the horizon, the log is full, or a new target workload is due."""
    state = by_reference(state)
    tally, rules, horizon_s = state.queue.tally[0], state.rules, state.rules.horizon_s
    if tally.arrivals == 0:
        judge(state)
    while _has_room(state):
        if tally.arrivals >= tally.aim_at:
            return AIM
        if rules.preempting:  # no kernel of its own: LLVM would optimize all rounds once more
            preempting_round(state)
        elif rules.easy:
            easy_round(state)
        else:
            simple_round(state)
        upcoming_s = next_moment(state)
        if upcoming_s > horizon_s or upcoming_s == math.inf:
            return DONE
        tally.now_s = upcoming_s
        end_runs(state)
        admit(state)
    return LOG_FULL


@kept
def aim_at_goal(state: State) -> None:
    """Recompute what depends on the target workload `State.goal`, which is new."""
    aim(by_reference(state))


@kernel
def _start_given(state: State, given: Placed, row: int) -> None:
    """Start job `row` of those that are placed."""
    scratch, begin = state.scratch, given.first[row]
    for place in range(begin, given.first[row + 1]):
        scratch.chosen[place - begin] = given.hosts[place]
        scratch.counts[place - begin] = given.counts[place]
        for device in range(scratch.taken.shape[1]):
            scratch.taken[place - begin, device] = given.taken[place, device]
    start_chosen(state, given.jobs[row], given.first[row + 1] - begin)


@kept
def enter(state: State, given: Placed, listed: int, room: Room, waiting: IntArray) -> None:
    """Start the jobs that are placed, and queue the jobs `waiting`, except those that can never fit.

    The first `listed` of the jobs hold what is not free in `room`, and others may hold more of it.
    """
    state = by_reference(state)
    rules, queue, cluster = state.rules, state.queue, state.cluster
    judge(state)
    for row in range(listed):
        _start_given(state, given, row)
    copied(room, cluster.now)
    for resource in range(3):
        cluster.total_free[resource] = 0
        for machine in range(len(room.free)):
            cluster.total_free[resource] += room.free[machine, resource]
    for row in range(listed, len(given.jobs)):
        _start_given(state, given, row)
    for place in range(len(waiting)):
        job = waiting[place]
        record = queue.jobs[job]
        record.never_fits = not queue.buckets[record.full_bucket].possible
        if record.never_fits:
            record.rank = key_of(rules, queue, job, 0.0)
        else:
            wait(rules, queue, len(cluster.away), job)
    queue.tally[0].arrivals = len(queue.jobs)

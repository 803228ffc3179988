"""EASY backfill: reserve capacity for the first job that does not fit (the head), and start later jobs beside it.

A later job starts only if it is not expected to delay the head. Called by `loop`.

References
----------
Lifka: The ANL/IBM SP scheduling system, JSSPP 1995. Here, in contrast, capacity is reserved on particular machines, and
run times are predicted instead of stated by users.
"""

import math

from pipelines.simulation.engine.compiled.heaps import heaped, popped
from pipelines.simulation.engine.compiled.offers import next_offer, offer_again, offer_all
from pipelines.simulation.engine.compiled.starts import lent, start, start_chosen, wait
from pipelines.simulation.engine.compiled.waiting import take
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.placing import copy_room, fits, fits_free, hosted_in_all, placed, share_free
from scheduler_core.kernels.state import NONE, State

OPEN = 0
SHORT_ONLY = 1
"""State of a bucket whose jobs fit the free capacity, but only by using reserved capacity.

Only its jobs that are expected to end before the reservation begins may start.
"""
SHUT = 2


@kernel
def _expected_ends(state: State) -> int:
    """Build a heap in `picks` of the current runs by expected end, and return their number."""
    log, tally, picks = state.log, state.queue.tally[0], state.scratch.picks
    for place in range(tally.running):
        number = log.ends[place].run
        run = log.runs[number]
        picks[place].value = max(tally.now_s, run.start_s + state.queue.jobs[run.job].predicted_s)
        picks[place].tie = number
        picks[place].what = number
    heaped(picks, tally.running)
    return int(tally.running)


@kernel
def _reserved(state: State, at: int) -> float:
    """Return when the head, the first job of bucket `at`, is expected to start.

    Write to `spare` the capacity that is expected to be free at that time after the head has started.
    """
    queue, cluster, scratch = state.queue, state.cluster, state.scratch
    bare, picks, instances = scratch.bare, scratch.picks, queue.buckets[at].instances
    copy_room(cluster.free, bare)
    count = hosted_in_all(cluster, bare, queue, at)
    left, shadow_s = _expected_ends(state), math.inf
    while count < instances and left > 0:
        shadow_s = picks[0].value
        while left > 0 and picks[0].value == shadow_s:
            left = popped(picks, left)
            count += lent(state, picks[left].what, 1, at)
    copy_room(bare, scratch.spare)
    if count < instances:
        return math.inf
    for machine in range(len(bare)):
        scratch.bare_room[machine] = share_free(bare, machine, cluster.largest)
    used = placed(state.rules.placement, cluster, bare, scratch.bare_room, queue, at, scratch)
    for place in range(used):
        for resource in range(3):
            scratch.spare[scratch.chosen[place], resource] -= queue.units[at, resource] * scratch.counts[place]
    return shadow_s


@kernel
def _narrow(state: State, machine: int) -> None:
    """Write to `bare` the capacity of a machine that is free now and will not be needed by the head."""
    scratch = state.scratch
    for resource in range(3):
        scratch.bare[machine, resource] = min(state.cluster.free[machine, resource], scratch.spare[machine, resource])


@kernel
def _backfilled(state: State, at: int, job: int, shadow_s: float) -> bool:
    """Start a job taken from the queue if that does not delay the head, and return whether it started.

    If its demand does not fit, set the state `passed` of its bucket to `SHUT` or `SHORT_ONLY`.
    """
    queue, cluster, scratch, log = state.queue, state.cluster, state.scratch, state.log
    bucket = queue.buckets[at]
    late = queue.tally[0].now_s + queue.jobs[job].predicted_s > shadow_s
    if bucket.passed == SHUT or (late and bucket.passed == SHORT_ONLY):
        return False
    if not fits_free(cluster, queue, at):
        bucket.passed = SHUT
        return False
    if not late:
        number = start(state, job)
    elif fits(cluster, scratch.bare, queue, at):
        for machine in range(len(scratch.bare)):
            scratch.bare_room[machine] = share_free(scratch.bare, machine, cluster.largest)
        used = placed(state.rules.placement, cluster, scratch.bare, scratch.bare_room, queue, at, scratch)
        number = start_chosen(state, job, used)
    else:
        bucket.passed = SHORT_ONLY
        return False
    for place in range(log.runs[number].first_host, log.runs[number + 1].first_host):
        if late:
            for resource in range(3):
                scratch.spare[log.hosts[place], resource] -= queue.units[at, resource] * log.counts[place]
        _narrow(state, log.hosts[place])
    return True


@kernel
def _still_open(state: State) -> int:
    """Count the non-empty buckets whose jobs fit the free capacity, and mark the others `SHUT`."""
    queue, count = state.queue, 0
    for place in range(queue.tally[0].filled):
        at = queue.filled[place]
        queue.buckets[at].passed = OPEN if fits_free(state.cluster, queue, at) else SHUT
        count += queue.buckets[at].passed == OPEN
    return count


@kernel
def _behind(state: State, head: int) -> None:
    """Try to start jobs behind the head (the first job of bucket `head`), in queue order, up to the backfill depth.

    Jobs that may not start are kept in `scratch.aside`, and return to the queue at the end of the round.
    """
    queue, scratch, tally = state.queue, state.scratch, state.queue.tally[0]
    machines = len(state.cluster.free)
    usable = _still_open(state)
    if usable == 0:
        return  # no job fits the free capacity
    shadow_s = _reserved(state, head)
    for machine in range(machines):
        _narrow(state, machine)
    scratch.aside[0] = take(queue, machines, head)
    tally.aside = 1
    offer_again(state, head)
    for _ in range(state.rules.depth):
        at = next_offer(state)
        if at == NONE or usable == 0:
            break
        was_open = queue.buckets[at].passed != SHUT
        job = take(queue, machines, at)
        if not _backfilled(state, at, job, shadow_s):
            scratch.aside[tally.aside] = job
            tally.aside += 1
        if was_open and (queue.buckets[at].passed == SHUT or queue.buckets[at].top == NONE):
            usable -= 1
        offer_again(state, at)
    for place in range(tally.aside):
        wait(state.rules, queue, machines, scratch.aside[place])


@kernel
def easy_round(state: State) -> None:
    """Start jobs in queue order until one does not fit (the head), then later jobs that do not delay the head."""
    queue, cluster = state.queue, state.cluster
    offer_all(state)
    at = next_offer(state)
    while at != NONE:
        if not fits_free(cluster, queue, at):
            _behind(state, at)
            return
        start(state, take(queue, len(cluster.free), at))
        offer_again(state, at)
        at = next_offer(state)

"""EASY backfill: reserve capacity for the first job that does not fit (the head), and start later jobs beside it.

A later job starts only if it is not expected to delay the head.

References
----------
Lifka: The ANL/IBM SP scheduling system, JSSPP 1995. Here, in contrast, capacity is reserved on particular machines, and
run times are predicted instead of stated by users.
"""

import math

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.placing import placed
from scheduler_core.kernels.records import DRF
from scheduler_core.kernels.rooms import copied, fits_free, missing_in, share_free, shift
from scheduler_core.kernels.starts import lent, start, start_chosen
from scheduler_core.kernels.state import NONE, Room, State
from scheduler_core.kernels.waiting import (
    bucket_of,
    clear_front,
    leave_front,
    next_offer,
    offer_again,
    offer_all,
    unlink,
)

__all__ = ["narrow", "reserve"]

OPEN = 0
SHORT_ONLY = 1
"""State of a bucket whose jobs fit the free capacity, but only by using reserved capacity.

Only its jobs that are expected to end before the reservation begins may start.
"""
SHUT = 2


@kernel
def reserve(state: State, head: int) -> None:
    """Reserve capacity for the head: write its expected start to `shadow_s`.

    Write to `spare` the capacity that is expected to be free at that time after the head has started.
    """
    queue, cluster, scratch, tally = state.queue, state.cluster, state.scratch, state.queue.tally[0]
    expected, at = state.log.expected, bucket_of(queue.jobs, head)
    bare, instances = scratch.bare, queue.buckets[at].instances
    tally.reserved_for, tally.reserved_changes, tally.reserved_runs = head, tally.changes, tally.runs
    tally.shadow_s, tally.lent = math.inf, 0
    copied(cluster.now, bare)
    # A single instance that does not fit: no machine hosts it.
    count = instances - missing_in(cluster, bare, queue, at) if instances > 1 else 0
    while count < instances and tally.lent < tally.running:
        tally.shadow_s = max(tally.now_s, expected[tally.lent].end_s)
        while tally.lent < tally.running and expected[tally.lent].end_s <= tally.shadow_s:
            count += lent(state, expected[tally.lent].run, 1, at)
            tally.lent += 1
    copied(bare, scratch.spare)
    if count < instances:
        tally.shadow_s = math.inf
        return
    for each in range(tally.lent):
        number = expected[each].run
        for place in range(state.log.runs[number].first_host, state.log.runs[number + 1].first_host):
            machine = state.log.hosts[place]
            bare.freeness[machine] = share_free(bare.free, machine, cluster.largest)
    used = placed(state, bare, at)
    for place in range(used):
        machine, count = scratch.chosen[place], -scratch.counts[place]
        shift(scratch.spare, cluster.largest, machine, queue, at, count, scratch.taken, place)


@kernel
def _still_reserved(state: State, head: int) -> bool:
    """Return whether the last reservation holds now: for the same head, with the same runs expected to end by then.

    `shadow_s` is moved to now if all these runs are past their expected ends.
    """
    tally = state.queue.tally[0]
    same = tally.reserved_for == head and tally.reserved_changes == tally.changes
    if not same or tally.reserved_runs != tally.runs:
        return False
    if tally.now_s > tally.shadow_s:
        if tally.lent < tally.running and state.log.expected[tally.lent].end_s <= tally.now_s:
            return False
        tally.shadow_s = tally.now_s
        tally.seen = 0
    return True


@kernel
def _narrow_devices(now: Room, spare: Room, bare: Room, machine: int) -> None:
    bare.free[machine, 2] = 0
    for device in range(bare.devices.shape[1]):
        bare.devices[machine, device] = min(now.devices[machine, device], spare.devices[machine, device])
        bare.free[machine, 2] += bare.devices[machine, device]
    for size in range(bare.tenants.shape[1]):
        bare.tenants[machine, size] = max(now.tenants[machine, size], spare.tenants[machine, size])


@kernel
def narrow(state: State, first: int, end: int) -> None:
    """Write to `bare` the capacity of machines that is free now and will not be needed by the head."""
    now, spare, bare, largest = state.cluster.now, state.scratch.spare, state.scratch.bare, state.cluster.largest
    free, now_free, spare_free = bare.free, now.free, spare.free
    by_device = bare.devices.shape[1] > 0
    for machine in range(first, end):
        for resource in range(3):
            free[machine, resource] = min(now_free[machine, resource], spare_free[machine, resource])
        if by_device:
            _narrow_devices(now, spare, bare, machine)
        same = True  # mostly, and divisions take long
        for resource in range(3):
            same &= free[machine, resource] == now_free[machine, resource]
        bare.freeness[machine] = now.freeness[machine] if same else share_free(free, machine, largest)


@kernel
def _backfilled(state: State, place: int, late: bool) -> bool:
    """Start the job at index `place` of the front if that does not delay the head, and return whether it started.

    `late` means that it is expected to end after the reservation begins. If its demand does not fit, set the state
    `passed` of its bucket to `SHUT` or `SHORT_ONLY`.
    """
    queue, cluster, scratch, log = state.queue, state.cluster, state.scratch, state.log
    at = queue.front[place].bucket
    bucket = queue.buckets[at]
    if not fits_free(cluster, queue, at):
        bucket.passed = SHUT
        return False
    if not late:
        number = start(state, leave_front(queue, len(cluster.away), place))
    elif missing_in(cluster, scratch.bare, queue, at) == 0:
        used = placed(state, scratch.bare, at)
        number = start_chosen(state, leave_front(queue, len(cluster.away), place), used)
    else:
        bucket.passed = SHORT_ONLY
        return False
    for host in range(log.runs[number].first_host, log.runs[number + 1].first_host):
        if late:
            count = -log.counts[host]
            shift(scratch.spare, cluster.largest, log.hosts[host], queue, at, count, log.devices, host)
        narrow(state, log.hosts[host], log.hosts[host] + 1)
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
def _in_front(state: State, place: int) -> bool:
    """Extend the front until it has a job at index `place`; return False if too few jobs wait."""
    queue, tally = state.queue, state.queue.tally[0]
    while tally.front <= place:
        if tally.offers == NONE:
            offer_all(state)
        at = next_offer(state)
        if at == NONE:
            return False
        queue.front[tally.front].job = unlink(queue, at)
        queue.front[tally.front].bucket = at
        tally.front += 1
        offer_again(state, at)
    return True


@kernel
def _behind(state: State) -> None:
    """Try to start jobs behind the head, the first job of the front, in queue order, up to the backfill depth.

    If the reservation still holds, only jobs that arrived since are tried: nothing changed for the others.
    """
    queue, tally, head = state.queue, state.queue.tally[0], state.queue.front[0].job
    usable = _still_open(state)
    if usable == 0:
        return  # no job fits the free capacity
    if not _still_reserved(state, head):
        reserve(state, head)
        tally.seen = 0
        narrow(state, 0, len(state.cluster.away))
    place, runs = 1, tally.runs
    for _ in range(state.rules.depth):
        if usable == 0 or not _in_front(state, place):
            break
        job, bucket = queue.front[place].job, queue.buckets[queue.front[place].bucket]
        if job < tally.seen or bucket.passed == SHUT:
            place += 1
            continue
        late = tally.now_s + queue.jobs[job].predicted_s > tally.shadow_s
        if (late and bucket.passed == SHORT_ONLY) or not _backfilled(state, place, late):
            place += 1
        usable -= bucket.passed == SHUT
    tally.seen = tally.arrivals if tally.runs == runs and state.rules.policy != DRF else 0


@kernel
def easy_round(state: State) -> None:
    """Start jobs in queue order until one does not fit (the head), then later jobs that do not delay the head."""
    queue, cluster, tally = state.queue, state.cluster, state.queue.tally[0]
    tally.offers = NONE
    while _in_front(state, 0):
        if not fits_free(cluster, queue, queue.front[0].bucket):
            _behind(state)
            break
        start(state, leave_front(queue, len(cluster.away), 0))
    if state.rules.policy == DRF:
        clear_front(queue)

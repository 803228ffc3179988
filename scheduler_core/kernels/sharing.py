"""Placement by device: each instance of a gang goes in turn to the machine with the best score for it.

Among equal scores the machine listed first wins, or a random one. Scores are cached until a machine changes.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.rooms import WHOLE, copied_on, open_to, shift
from scheduler_core.kernels.scores import RANDOM, evaluate, refresh
from scheduler_core.kernels.state import NONE, STALE, Cache, Room, State

__all__ = ["aim", "place_by_device"]

TIES = 0
DEVICE = 1
"""Channels of random numbers: one breaks ties among machines, one chooses a device."""

MODULUS = 2147483647
FACTOR = 48271
"""Constants of a multiplicative congruential generator.

References
----------
Park, Miller, Stockmeyer: Technical correspondence, Communications of the ACM 1993.
"""


@kernel
def _mixed(value: int, part: int) -> int:
    for _ in range(4):
        value = (value * FACTOR + part + 1) % MODULUS
    return value


@kernel
def drawn(seed: int, number: int, instance: int, channel: int) -> float:
    """Return a number in 0..1 that depends on the arguments only."""
    return float(_mixed(_mixed(_mixed(seed % MODULUS, number), instance), channel) / MODULUS)


@kernel
def _outdate(cache: Cache, machine: int) -> None:
    """Mark the cached scores of a machine as stale."""
    for row in range(cache.score.shape[0]):
        cache.score[row, machine] = STALE


@kernel
def aim(state: State) -> None:
    """Recompute all fragmentation for a new target workload, and mark all scores as stale."""
    for machine in range(len(state.cache.up)):
        refresh(state.cache, machine, state.goal)
        _outdate(state.cache, machine)


@kernel
def mirror(state: State, room: Room) -> None:
    """Copy the free capacity of machines that differ to the cache, and mark their scores as stale."""
    cache, cached = state.cache, state.cache.room
    for machine in range(len(cache.up)):
        up = state.cluster.away[machine] == 0
        same = cache.up[machine] == up
        same &= cached.free[machine, 0] == room.free[machine, 0] and cached.free[machine, 1] == room.free[machine, 1]
        for device in range(room.devices.shape[1]):
            same &= cached.devices[machine, device] == room.devices[machine, device]
        for size in range(room.tenants.shape[1]):
            same &= cached.tenants[machine, size] == room.tenants[machine, size]
        if not same:
            cache.up[machine] = up
            copied_on(room, cached, machine)
            refresh(cache, machine, state.goal)
            _outdate(cache, machine)


@kernel
def row_of(cache: Cache, shape: int) -> int:
    """Return the row of the cache for a shape of demand; it is emptied if it was another's."""
    row = shape % len(cache.shape)
    if cache.shape[row] != shape:
        cache.shape[row] = shape
        for machine in range(cache.score.shape[1]):
            cache.score[row, machine] = STALE
    return int(row)


@kernel
def best_machine(state: State, at: int, row: int, draw: float) -> int:
    """Return the machine with the best score for an instance of bucket `at`, NONE if no machine can host it.

    If `draw` is not negative, it chooses among equal scores; otherwise the first is chosen.
    """
    queue, cache, policy = state.queue, state.cache, state.rules.placement
    best, ties, found = NONE, 0, NONE
    for machine in range(len(cache.up)):
        if cache.score[row, machine] == STALE:
            if open_to(state.cluster, machine, queue.buckets[at].gpu_type):
                evaluate(policy, cache, machine, queue, at, row, state.goal)
            else:
                cache.score[row, machine] = NONE
        score = cache.score[row, machine]
        if score > best:
            best, ties, found = score, 1, machine
        elif score == best:
            ties += 1
    if best == NONE or draw < 0.0 or ties == 1:
        return found
    skipped = min(int(draw * ties), ties - 1)
    for machine in range(found, len(cache.up)):
        if cache.score[row, machine] == best:
            if skipped == 0:
                return machine
            skipped -= 1
    return found


@kernel
def _drawn_device(room: Room, machine: int, milli: int, draw: float) -> int:
    fitting = 0
    for device in range(room.devices.shape[1]):
        fitting += room.devices[machine, device] >= milli
    skipped = min(int(draw * fitting), fitting - 1)
    for device in range(room.devices.shape[1]):
        if room.devices[machine, device] >= milli:
            if skipped == 0:
                return device
            skipped -= 1
    return NONE


@kernel
def take(state: State, at: int, row: int, machine: int, place: int, draw: float) -> None:
    """Place an instance of bucket `at` on a machine of the cache; write its devices to row `place` of `taken`."""
    bucket, cache, scratch = state.queue.buckets[at], state.cache, state.scratch
    bits = cache.taken[row, machine]
    if state.rules.placement == RANDOM and bucket.count == 1 and bucket.milli < WHOLE:
        bits = 1 << _drawn_device(cache.room, machine, bucket.milli, draw)
    for device in range(cache.room.devices.shape[1]):
        scratch.taken[place, device] = bucket.milli * (bits >> device & 1)
    shift(cache.room, state.cluster.largest, machine, state.queue, at, -1, scratch.taken, place)
    refresh(cache, machine, state.goal)
    _outdate(cache, machine)


@kernel
def place_by_device(state: State, room: Room, at: int) -> int:
    """Choose machines and devices for a gang that fits `room`, as `placing.placed` does."""
    bucket, scratch, rules = state.queue.buckets[at], state.scratch, state.rules
    devices = room.devices.shape[1]
    mirror(state, room)
    row, used = row_of(state.cache, bucket.shape), 0
    for machine in range(len(scratch.slot)):
        scratch.slot[machine] = NONE
    for instance in range(bucket.instances):
        tie = device_draw = -1.0
        if rules.placement == RANDOM:
            tie = drawn(rules.seed, state.queue.tally[0].runs, instance, TIES)
            device_draw = drawn(rules.seed, state.queue.tally[0].runs, instance, DEVICE)
        machine = best_machine(state, at, row, tie)
        place = int(scratch.slot[machine])
        if place == NONE:
            place = used
            scratch.slot[machine] = used
            scratch.chosen[used] = machine
            scratch.counts[used] = 0
            used += 1
            take(state, at, row, machine, place, device_draw)
        else:
            for device in range(devices):
                scratch.able[device] = scratch.taken[place, device]
            take(state, at, row, machine, place, device_draw)
            for device in range(devices):
                scratch.taken[place, device] += scratch.able[device]
        scratch.counts[place] += 1
    return used

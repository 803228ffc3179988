"""Start and stop runs: allocate machines to a job and release them; compute the sort keys of waiting jobs.

The rounds decide which job starts.
"""

from typing import Final

import numpy as np

from scheduler_core.kernels.heaps import pushed
from scheduler_core.kernels.kernel import inlined, kernel
from scheduler_core.kernels.placing import placed
from scheduler_core.kernels.records import DRF, LAS, SRTF, Records
from scheduler_core.kernels.rooms import hosted_by_device, hosted_pooled, moved, note_change, open_to, shift
from scheduler_core.kernels.state import NONE, Cluster, Log, Queue, Rules, State
from scheduler_core.kernels.waiting import bucket_of, count_in, join_front, link
from scheduler_core.types import IntArray

__all__ = ["key_of", "lent", "start_chosen", "wait"]

RUNNING: Final = np.int64(0)  # not literals: numba would compile functions again for each
COMPLETED: Final = np.int64(1)
FAILED: Final = np.int64(2)
KILLED: Final = np.int64(3)
PREEMPTED: Final = np.int64(4)
"""How a run ended; a run still `RUNNING` has not ended."""


@kernel
def key_of(rules: Rules, queue: Queue, job: int, attained_s: float) -> float:
    """Return the sort key of a job that has attained `attained_s`, including aging; the smallest goes first."""
    row = queue.jobs[job]
    base = row.full_key if row.full else row.granted_key
    return float(key_from(rules, base, attained_s, row.arrive_s))


@inlined
def key_from(rules: Rules, base: float, attained_s: float, arrive_s: float) -> float:
    """Return the sort key from its constant part `base` and the other fields of a job, as `key_of` does."""
    key = base
    if rules.policy == SRTF:
        key = max(key - attained_s, 0.0)
    elif rules.policy == LAS:
        key = attained_s * key / 1000
    return float(key + rules.aging * arrive_s)


@kernel
def wait(rules: Rules, queue: Queue, machines: int, job: int) -> None:
    """Add a job to its bucket, sorted by its current key.

    Under DRF all jobs of a bucket are of one user, and are sorted by serial.
    """
    row = queue.jobs[job]
    row.rank = 0.0 if rules.policy == DRF else key_of(rules, queue, job, row.attained_s)
    if rules.easy and queue.tally[0].front > 0:
        join_front(rules, queue, machines, job)
    else:
        link(queue, job)
        count_in(queue, machines, bucket_of(queue.jobs, job))


@kernel
def charge(cluster: Cluster, queue: Queue, at: int, user: int, sign: int) -> None:
    """Add the resources of one job of bucket `at` to those its user holds (`sign` 1), or subtract them (-1)."""
    for resource in range(3):
        cluster.held[user, resource] += sign * queue.units[at, resource] * queue.buckets[at].instances


@kernel
def lent(state: State, number: int, sign: int, at: int) -> int:
    """Add the allocation of run `number` to the hypothetical free capacity `bare` (`sign` 1), or subtract it (-1).

    The freeness of machines stays as it is. Return how many more instances of a job of bucket `at` then fit in `bare`
    (0 or negative after a subtraction).
    """
    queue, cluster, log, bare = state.queue, state.cluster, state.log, state.scratch.bare
    instances, gpu_type, more = queue.buckets[at].instances, queue.buckets[at].gpu_type, 0
    own, hosts, counts, pooled = log.runs[number].bucket, log.hosts, log.counts, bare.devices.shape[1] == 0
    free, units = bare.free, queue.units
    for place in range(log.runs[number].first_host, log.runs[number + 1].first_host):
        machine, count = hosts[place], sign * counts[place]
        if not open_to(cluster, machine, gpu_type):
            moved(bare, machine, queue, own, count, log.devices, place)
        elif pooled:
            more -= hosted_pooled(free, machine, units, at, instances, 3)
            for resource in range(3):
                free[machine, resource] += units[own, resource] * count
            more += hosted_pooled(free, machine, units, at, instances, 3)
        else:
            more -= hosted_by_device(bare, machine, queue, at, instances)
            moved(bare, machine, queue, own, count, log.devices, place)
            more += hosted_by_device(bare, machine, queue, at, instances)
    return more


@kernel
def shift_now(cluster: Cluster, queue: Queue, at: int, machine: int, count: int, taken: IntArray, row: int) -> None:
    """Release `count` instances on a machine of the cluster, as `rooms.shift` does; a negative count allocates them."""
    shift(cluster.now, cluster.largest, machine, queue, at, count, taken, row)
    for resource in range(3):
        cluster.total_free[resource] += queue.units[at, resource] * count


@kernel
def _settle(cluster: Cluster, log: Log, place: int) -> None:
    """Add entry `place` of `log.hosts` to the list of its machine."""
    first = cluster.first_on[log.hosts[place]]
    log.older[place], log.newer[place] = first, NONE
    if first != NONE:
        log.newer[first] = place
    cluster.first_on[log.hosts[place]] = place


@kernel
def _leave(cluster: Cluster, log: Log, place: int) -> None:
    """Remove entry `place` of `log.hosts` from the list of its machine."""
    older, newer = log.older[place], log.newer[place]
    if older != NONE:
        log.newer[older] = newer
    if newer != NONE:
        log.older[newer] = older
    else:
        cluster.first_on[log.hosts[place]] = older


@kernel
def _activate(log: Log, row: Records, count: int, number: int) -> None:
    """Add run `number` of the job `row` to the current runs, of which there are `count`."""
    one = log.active[count]
    one.start_s = log.runs[number].start_s
    one.attained_s = row.attained_s
    one.owed_s = row.owed_s
    one.base = row.full_key if row.full else row.granted_key
    one.arrive_s = row.arrive_s
    one.run = number
    one.bucket = log.runs[number].bucket
    row.slot = count


@kernel
def _deactivate(log: Log, jobs: Records, count: int, slot: int) -> None:
    """Remove the run at index `slot` from the current runs, of which there are `count`."""
    log.active[slot] = log.active[count - 1]
    number = log.active[slot].run
    jobs[log.runs[number].job].slot = slot
    for place in range(log.runs[number].first_host, log.runs[number + 1].first_host):
        log.owner[place] = slot


@kernel
def _expect(log: Log, count: int, run: int, end_s: float) -> None:
    """Add a run to the current runs by expected end, of which there are `count`; its number is larger than theirs."""
    expected, place = log.expected, count
    while place > 0 and expected[place - 1].end_s > end_s:
        expected[place] = expected[place - 1]
        place -= 1
    expected[place].end_s = end_s
    expected[place].run = run


@kernel
def _unexpect(log: Log, count: int, run: int, end_s: float) -> None:
    """Remove a run from the current runs by expected end, of which there are `count`."""
    expected, low, high = log.expected, 0, count
    while low < high:
        middle = (low + high) // 2
        if expected[middle].end_s < end_s or (expected[middle].end_s == end_s and expected[middle].run < run):
            low = middle + 1
        else:
            high = middle
    for place in range(low, count - 1):
        expected[place] = expected[place + 1]


@kernel
def start_chosen(state: State, job: int, used: int) -> int:
    """Start a job taken from the queue on the `used` machines in `scratch.chosen`; return the number of the run."""
    queue, cluster, log, scratch = state.queue, state.cluster, state.log, state.scratch
    tally, row = queue.tally[0], queue.jobs[job]
    at = bucket_of(queue.jobs, job)
    for place in range(used):
        log.hosts[tally.hosts] = scratch.chosen[place]
        log.counts[tally.hosts] = scratch.counts[place]
        log.owner[tally.hosts] = tally.running
        for device in range(log.devices.shape[1]):
            log.devices[tally.hosts, device] = scratch.taken[place, device]
        _settle(cluster, log, tally.hosts)
        shift_now(cluster, queue, at, scratch.chosen[place], -scratch.counts[place], scratch.taken, place)
        tally.hosts += 1
    charge(cluster, queue, at, row.user, 1)
    number = tally.runs
    run = log.runs[number]
    run.start_s = tally.now_s
    run.end_s = tally.now_s + row.left_s
    run.job = job
    run.bucket = at
    run.full = row.full
    run.ending = RUNNING
    log.runs[number + 1].first_host = tally.hosts
    pushed(log.ends, tally.ends, run.end_s, number, number)
    tally.ends += 1
    _activate(log, row, tally.running, number)
    if state.rules.easy:
        _expect(log, tally.running, number, run.start_s + row.predicted_s)
    tally.runs += 1
    tally.running += 1
    return int(number)


@kernel
def start(state: State, job: int) -> int:
    """Place and start a job that was taken from the queue and fits; return the number of the run."""
    return int(start_chosen(state, job, placed(state, state.cluster.now, bucket_of(state.queue.jobs, job))))


@kernel
def stop(state: State, number: int, ending: int) -> int:
    """End run `number` now, release its machines, and return its job."""
    queue, log = state.queue, state.log
    tally, run = queue.tally[0], log.runs[number]
    job = run.job
    at = bucket_of(queue.jobs, job)
    for place in range(run.first_host, log.runs[number + 1].first_host):
        shift_now(state.cluster, queue, at, log.hosts[place], log.counts[place], log.devices, place)
        _leave(state.cluster, log, place)
        note_change(state.cluster, queue, log.hosts[place])
    charge(state.cluster, queue, at, queue.jobs[job].user, -1)
    if state.rules.easy:
        _unexpect(log, tally.running, number, run.start_s + queue.jobs[job].predicted_s)
    _deactivate(log, queue.jobs, tally.running, queue.jobs[job].slot)
    tally.running -= 1
    run.ending = ending
    run.end_s = tally.now_s
    return int(job)

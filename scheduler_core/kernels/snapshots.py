"""The state of a cluster as it is now, and where each job that a round started would go without its machines."""

from scheduler_core.kernels.clock import judge
from scheduler_core.kernels.kernel import by_reference, kept, kernel
from scheduler_core.kernels.placing import placed
from scheduler_core.kernels.rooms import copied, fits, shift
from scheduler_core.kernels.scores import FGD, FGD_USED_FIRST
from scheduler_core.kernels.sharing import mirror_machine
from scheduler_core.kernels.starts import key_of, start_chosen, wait
from scheduler_core.kernels.state import Alternatives, Placed, Room, State
from scheduler_core.types import IntArray

__all__ = ["compare", "enter"]


@kernel
def _start(state: State, given: Placed, row: int) -> None:
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
        _start(state, given, row)
    copied(room, cluster.now)
    for resource in range(3):
        cluster.total_free[resource] = 0
        for machine in range(len(room.free)):
            cluster.total_free[resource] += room.free[machine, resource]
    for row in range(listed, len(given.jobs)):
        _start(state, given, row)
    for place in range(len(waiting)):
        job = waiting[place]
        record = queue.jobs[job]
        record.never_fits = not queue.buckets[record.full_bucket].possible
        if record.never_fits:
            record.rank = key_of(rules, queue, job, 0.0, 0.0)
        else:
            wait(rules, queue, len(cluster.away), job)
    queue.tally[0].arrivals = len(queue.jobs)


@kernel
def _unusable_on(state: State, room: Room, machine: int) -> int:
    """Return a machine's fragmentation in `room`, multiplied by the number of the target's pods."""
    mirror_machine(state, room, machine)
    return int(state.cache.fragmented[machine])


@kernel
def _compare(state: State, room: Room, number: int, into: Alternatives) -> None:
    """Take what run `number` holds from `room`, and write where the job would go without the run's machines."""
    cluster, queue, log, scratch = state.cluster, state.queue, state.log, state.scratch
    at, start = log.runs[number].bucket, number - into.started
    begin, end = log.runs[number].first_host, log.runs[number + 1].first_host
    aims = state.rules.placement == FGD or state.rules.placement == FGD_USED_FIRST
    for which in range(4):
        into.unusable[start, which] = 0
    for place in range(begin, end):
        machine = log.hosts[place]
        for resource in range(3):
            into.own[place, resource] = room.free[machine, resource]
        if aims:
            into.unusable[start, 0] += _unusable_on(state, room, machine)
    for place in range(begin, end):
        cluster.away[log.hosts[place]] += 1
    used = placed(state, room, at) if fits(cluster, room, queue, at) else 0
    into.first[start + 1] = into.first[start] + used
    for place in range(used):
        entry, machine = into.first[start] + place, scratch.chosen[place]
        into.hosts[entry], into.counts[entry] = machine, scratch.counts[place]
        for resource in range(3):
            into.free[entry, resource] = room.free[machine, resource]
        if aims:
            into.unusable[start, 3] += state.cache.fragmented[machine]
            into.unusable[start, 2] += _unusable_on(state, room, machine)
    for place in range(begin, end):
        machine = log.hosts[place]
        cluster.away[machine] -= 1
        shift(room, cluster.largest, machine, queue, at, -log.counts[place], log.devices, place)
        if aims:
            into.unusable[start, 1] += _unusable_on(state, room, machine)


@kept
def compare(state: State, into: Alternatives) -> None:
    """Write where each job that the round started would have gone without the machines that it got.

    The jobs are in the order of their starts, each with the capacity that was free before it.
    """
    state = by_reference(state)
    log, cluster, room = state.log, state.cluster, state.scratch.bare
    copied(cluster.now, room)
    runs = state.queue.tally[0].runs
    for number in range(into.started, runs):
        at = log.runs[number].bucket
        for place in range(log.runs[number].first_host, log.runs[number + 1].first_host):
            shift(room, cluster.largest, log.hosts[place], state.queue, at, log.counts[place], log.devices, place)
    for number in range(into.started, runs):
        _compare(state, room, number, into)

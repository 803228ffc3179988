"""A round with preemption: a job that does not fit may stop running jobs that have a worse sort key.

A running job is not stopped if the waiting job fits without stopping it.
"""

from scheduler_core.kernels.heaps import heaped, popped, sooner, swapped
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.offers import next_offer, offer_again, offer_all
from scheduler_core.kernels.rooms import copied, fits_free, hosted_in_all
from scheduler_core.kernels.starts import PREEMPTED, RUNNING, lent, start, stop, wait
from scheduler_core.kernels.state import NONE, State
from scheduler_core.kernels.stuck import give_up, is_ripe, is_stuck, key_now, ripen
from scheduler_core.kernels.waiting import take


@kernel
def _stoppable(state: State, rank: float) -> int:
    """Write to `picks` the preemptible runs with a worse sort key than `rank`, and return their number.

    The worst key is at the top; `_worst` builds the heap if more are asked for.
    """
    log, picks, count = state.log, state.scratch.picks, 0
    for slot in range(state.queue.tally[0].running):
        run = log.active[slot]
        if not is_ripe(state, run.start_s):
            continue
        key = key_now(state, run)
        if key > rank:
            picks[count].value = -key
            picks[count].tie = -log.runs[run.run].job
            picks[count].what = run.run
            if sooner(picks, count, 0):
                swapped(picks, count, 0)
            count += 1
    state.queue.tally[0].heaped = count
    state.queue.tally[0].in_order = False
    return count


@kernel
def _preempted(state: State, number: int) -> None:
    """Preempt run `number`; its job is kept in `scratch.aside` until the end of the round, then waits again."""
    queue, scratch, tally = state.queue, state.scratch, state.queue.tally[0]
    planned_s, start_s = state.log.runs[number].end_s, state.log.runs[number].start_s
    job = stop(state, number, PREEMPTED)
    row = queue.jobs[job]
    ran_s = tally.now_s - start_s
    row.left_s = planned_s - tally.now_s - max(row.owed_s - ran_s, 0.0) + state.rules.restart_cost_s
    row.attained_s += max(ran_s - row.owed_s, 0.0)
    row.owed_s = state.rules.restart_cost_s
    scratch.aside[tally.aside] = job
    tally.aside += 1


@kernel
def _worst(state: State, victims: int, place: int) -> int:
    """Return the index in `picks` of the run with the `place`-th worst key, counted from 0.

    `picks` holds `victims` runs: first the remaining heap, then the runs popped from it, with the worst key last.
    """
    tally = state.queue.tally[0]
    if victims - place <= tally.heaped:
        if place > 0 and not tally.in_order:
            heaped(state.scratch.picks, tally.heaped)
            tally.in_order = True
        tally.heaped = popped(state.scratch.picks, tally.heaped)
    return victims - 1 - place


@kernel
def _could_fit(state: State, at: int, victims: int, count: int) -> bool:
    """Return whether the first job of bucket `at` fits once all runs with a worse key than its own are stopped.

    `count` is the number of its instances that the free capacity hosts.
    """
    queue, scratch, log = state.queue, state.scratch, state.log
    rank, instances = queue.jobs[queue.buckets[at].top].rank, queue.buckets[at].instances
    copied(state.cluster.now, scratch.bare)
    for place in range(victims):
        if count >= instances:
            return True
        pick = scratch.picks[place]
        if -pick.value > rank and log.runs[pick.what].ending == RUNNING:
            count += lent(state, pick.what, 1, at)
    if count < instances:
        give_up(state, at, instances - count)
    return bool(count >= instances)


@kernel
def _chosen_victims(state: State, at: int, victims: int) -> int:
    """Mark in `shed` the runs that have to stop so that the first job of bucket `at` fits.

    Return how many of the `victims` were considered, worst key first; 0 if stopping all runs with a worse key than the
    job's would not free enough capacity.
    """
    queue, scratch, log = state.queue, state.scratch, state.log
    picks, instances, looked = scratch.picks, queue.buckets[at].instances, 0
    count = 0  # no machine hosts a single instance, as the job does not fit
    if instances > 1:
        count = hosted_in_all(state.cluster, state.cluster.now, queue, at)
    if not _could_fit(state, at, victims, count):
        return 0
    copied(state.cluster.now, scratch.bare)
    while count < instances:
        pick = picks[_worst(state, victims, looked)]
        if log.runs[pick.what].ending == RUNNING:
            count += lent(state, pick.what, 1, at)
        looked += 1
    for place in range(victims - looked, victims):
        number = picks[place].what
        scratch.shed[place] = False
        if log.runs[number].ending != RUNNING:
            continue
        without = count + lent(state, number, -1, at)
        if without >= instances:
            count = without
        else:
            lent(state, number, 1, at)
            scratch.shed[place] = True
    return looked


@kernel
def preempting_round(state: State) -> None:
    """Start, in queue order, every job that fits, or that fits once runs with a worse sort key are stopped.

    A job for which no choice of runs suffices closes its bucket for this round: jobs behind it may stop fewer runs.
    """
    queue, cluster, scratch, tally = state.queue, state.cluster, state.scratch, state.queue.tally[0]
    tally.aside = 0
    victims = NONE
    ripen(state)
    offer_all(state)
    at = next_offer(state)
    while at != NONE:
        looked = 0
        fitting = fits_free(cluster, queue, at)
        if not fitting and not is_stuck(state, at):
            victims = _stoppable(state, queue.jobs[queue.buckets[at].top].rank) if victims == NONE else victims
            looked = _chosen_victims(state, at, victims)
            for place in range(victims - looked, victims):
                if scratch.shed[place]:
                    _preempted(state, scratch.picks[place].what)
        if fitting or looked > 0:
            start(state, take(queue, len(cluster.away), at))
            offer_again(state, at)
        at = next_offer(state)
    for place in range(tally.aside):
        wait(state.rules, queue, len(cluster.away), scratch.aside[place])

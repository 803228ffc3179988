"""A round with preemption: a job that does not fit may stop running jobs that have a worse sort key.

A running job is not stopped if the waiting job fits without stopping it. Called by `loop`.
"""

from pipelines.simulation.engine.compiled.heaps import heaped, popped
from pipelines.simulation.engine.compiled.offers import next_offer, offer_again, offer_all
from pipelines.simulation.engine.compiled.starts import PREEMPTED, RUNNING, key_of, lent, start, stop, wait
from pipelines.simulation.engine.compiled.waiting import before, take
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.placing import copy_room, fits_free, hosted_in_all
from scheduler_core.kernels.state import NONE, State


@kernel
def _stoppable(state: State) -> int:
    """Build a heap in `picks` of the runs that have run for a quantum, worst sort key first; return their number."""
    log, queue, picks = state.log, state.queue, state.scratch.picks
    now_s, count = queue.tally[0].now_s, 0
    for place in range(queue.tally[0].running):
        number = log.ends[place].run
        run = log.runs[number]
        so_far_s = now_s - run.start_s
        if so_far_s >= state.rules.quantum_s:
            row = queue.jobs[run.job]
            attained_s = row.attained_s + max(so_far_s - row.owed_s, 0.0)
            owed_s = max(row.owed_s - so_far_s, 0.0) - state.rules.restart_cost_s
            picks[count].value = -key_of(state.rules, queue, run.job, attained_s, owed_s)
            picks[count].tie = -run.job
            picks[count].what = number
            count += 1
    heaped(picks, count)
    queue.tally[0].heaped = count
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
        tally.heaped = popped(state.scratch.picks, tally.heaped)
    return victims - 1 - place


@kernel
def _chosen_victims(state: State, at: int, victims: int) -> int:
    """Mark in `shed` the runs that have to stop so that the first job of bucket `at` fits.

    Return how many of the `victims` were considered, worst key first; 0 if stopping all runs with a worse key than the
    job's would not free enough capacity.
    """
    queue, scratch, log = state.queue, state.scratch, state.log
    picks, instances = scratch.picks, queue.buckets[at].instances
    rank, looked = queue.jobs[queue.buckets[at].top].rank, 0
    if victims == 0 or -picks[_worst(state, victims, 0)].value <= rank:
        return 0
    copy_room(state.cluster.free, scratch.bare)
    count = hosted_in_all(state.cluster, scratch.bare, queue, at)
    while count < instances and looked < victims:
        pick = picks[_worst(state, victims, looked)]
        if -pick.value <= rank:
            break
        if log.runs[pick.what].ending == RUNNING:
            count += lent(state, pick.what, 1, at)
        looked += 1
    if count < instances:
        return 0
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
def _reopened(state: State, passed: int, job: int) -> None:
    """Try buckets again that did not fit before runs were stopped for `job`, because more capacity is free now.

    Their jobs that go before `job` in the queue are kept in `scratch.aside`; only jobs behind `job` are tried again.
    """
    queue, scratch, tally = state.queue, state.scratch, state.queue.tally[0]
    for place in range(passed):
        at = scratch.passed[place]
        while queue.buckets[at].top != NONE and before(queue.jobs, queue.buckets[at].top, job):
            scratch.aside[tally.aside] = take(queue, len(state.cluster.free), at)
            tally.aside += 1
        offer_again(state, at)


@kernel
def preempting_round(state: State) -> None:
    """Start, in queue order, every job that fits, or that fits once runs with a worse sort key are stopped."""
    queue, cluster, scratch, tally = state.queue, state.cluster, state.scratch, state.queue.tally[0]
    tally.aside = 0
    victims, passed = NONE, 0
    offer_all(state)
    at = next_offer(state)
    while at != NONE:
        looked = 0
        fitting = fits_free(cluster, queue, at)
        if not fitting:
            victims = _stoppable(state) if victims == NONE else victims
            looked = _chosen_victims(state, at, victims)
            for place in range(victims - looked, victims):
                if scratch.shed[place]:
                    _preempted(state, scratch.picks[place].what)
        if fitting or looked > 0:
            job = take(queue, len(cluster.free), at)
            start(state, job)
            offer_again(state, at)
            if looked > 0:
                _reopened(state, passed, job)
                passed = 0
        else:
            scratch.passed[passed] = at
            passed += 1
        at = next_offer(state)
    for place in range(tally.aside):
        wait(state.rules, queue, len(cluster.free), scratch.aside[place])

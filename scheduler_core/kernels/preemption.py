"""A round with preemption: a job that does not fit may stop running jobs that have a worse sort key.

A running job is not stopped if the waiting job fits without stopping it. A gang is stuck if it does not fit even if all
preemptible runs with a worse sort key stop. It is tried again only if it may fit: machines changed, its bucket has a
first job with a better key, or a run's key became worse than the job's.
"""

import math

from scheduler_core.kernels.heaps import heaped, popped
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import LAS, NONE, Records
from scheduler_core.kernels.rooms import copied, fits_free, hosted_pooled, missing_in, note_change, open_to
from scheduler_core.kernels.starts import PREEMPTED, RUNNING, key_from, lent, start, stop, wait
from scheduler_core.kernels.state import State
from scheduler_core.kernels.waiting import next_offer, offer_again, offer_all, take

MARGIN = 1e-9
"""Relative margin of the time at which a key becomes worse, far above the rounding of keys and times."""


@kernel
def _is_ripe(state: State, start_s: float) -> bool:
    """Return whether a run that started at `start_s` has run for a quantum and so may be preempted."""
    return bool(state.queue.tally[0].now_s - start_s >= state.rules.quantum_s)


@kernel
def _key_now(state: State, run: Records) -> float:
    """Return the sort key that the job of a current run, an entry of `Log.active`, would have if preempted now."""
    so_far_s = state.queue.tally[0].now_s - run.start_s
    attained_s = run.attained_s + max(so_far_s - run.owed_s, 0.0)
    return float(key_from(state.rules, run.base, attained_s, run.arrive_s))


@kernel
def _ripen(state: State) -> None:
    """Note the machines of the runs that have become preemptible since the last round."""
    log, tally = state.log, state.queue.tally[0]
    while tally.ripe < tally.runs and _is_ripe(state, log.runs[tally.ripe].start_s):
        if log.runs[tally.ripe].ending == RUNNING:
            for place in range(log.runs[tally.ripe].first_host, log.runs[tally.ripe + 1].first_host):
                note_change(state.cluster, state.queue, log.hosts[place])
        tally.ripe += 1


@kernel
def _worse_at_s(state: State, run: Records, key: float, rank: float) -> float:
    """Return a time before which the LAS key of a current run, `key` now, does not become worse than `rank`."""
    now_s = state.queue.tally[0].now_s
    return float(now_s + (rank - key) * 1000 / run.base - MARGIN * (abs(rank) + now_s + 1.0))


@kernel
def _give_up(state: State, at: int, missing: int) -> None:
    """Remember that the first job of bucket `at` is stuck, with `missing` of its instances not fitting."""
    queue, log, tally, bucket = state.queue, state.log, state.queue.tally[0], state.queue.buckets[at]
    bucket.stuck_at = tally.changes
    bucket.stuck_missing = missing
    bucket.stuck_rank = queue.jobs[bucket.top].rank
    bucket.stuck_until_s = math.inf
    for slot in range(tally.running if state.rules.policy == LAS else 0):
        run = log.active[slot]
        if _is_ripe(state, run.start_s):
            key = _key_now(state, run)
            if key <= bucket.stuck_rank:
                bucket.stuck_until_s = min(bucket.stuck_until_s, _worse_at_s(state, run, key, bucket.stuck_rank))


@kernel
def _reachable_on(state: State, machine: int, at: int) -> int:
    """Return how many instances of bucket `at` a machine hosts beside the runs that its stuck job may not preempt."""
    queue, log, reach, bucket = state.queue, state.log, state.scratch.reach, state.queue.buckets[at]
    for resource in range(3):
        reach[0, resource] = state.cluster.now.free[machine, resource]
    place = state.cluster.first_on[machine]
    while place != NONE:
        run = log.active[log.owner[place]]
        if _is_ripe(state, run.start_s):
            key = _key_now(state, run)
            if key > bucket.stuck_rank:
                for resource in range(3):
                    reach[0, resource] += queue.units[run.bucket, resource] * log.counts[place]
            elif state.rules.policy == LAS:
                bucket.stuck_until_s = min(bucket.stuck_until_s, _worse_at_s(state, run, key, bucket.stuck_rank))
        place = log.older[place]
    return int(hosted_pooled(reach, 0, queue.units, at, bucket.instances, 3))


@kernel
def _is_stuck(state: State, at: int) -> bool:
    """Return whether the first job of bucket `at` surely fits by no choice of preemptible runs."""
    queue, cluster, bucket = state.queue, state.cluster, state.queue.buckets[at]
    tally, missing = queue.tally[0], bucket.stuck_missing
    if cluster.now.devices.shape[1] > 0:
        return False  # not remembered if GPUs are shared by device
    if bucket.stuck_at == NONE or tally.changes - bucket.stuck_at > len(cluster.changed):
        return False
    if queue.jobs[bucket.top].rank < bucket.stuck_rank or tally.now_s > bucket.stuck_until_s:
        return False
    for change in range(bucket.stuck_at, tally.changes):
        machine = cluster.changed[change % len(cluster.changed)]
        if open_to(cluster, machine, bucket.gpu_type):
            missing -= _reachable_on(state, machine, at)
    bucket.stuck_at = tally.changes if missing > 0 else NONE
    bucket.stuck_missing = missing
    return bool(missing > 0)


@kernel
def _stoppable(state: State, rank: float) -> int:
    """Write to `picks` the preemptible runs with a worse sort key than `rank`, and return their number.

    They are a heap with the worst key at the top.
    """
    log, picks, count = state.log, state.scratch.picks, 0
    for slot in range(state.queue.tally[0].running):
        run = log.active[slot]
        if not _is_ripe(state, run.start_s):
            continue
        key = _key_now(state, run)
        if key > rank:
            picks[count].value = -key
            picks[count].tie = -log.runs[run.run].job
            picks[count].what = run.run
            count += 1
    heaped(picks, count)
    state.queue.tally[0].heaped = count
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
        _give_up(state, at, instances - count)
    return bool(count >= instances)


@kernel
def _chosen_victims(state: State, at: int, victims: int) -> int:
    """Mark in `shed` the runs that have to stop so that the first job of bucket `at` fits.

    Return how many of the `victims` were considered, worst key first; 0 if stopping all runs with a worse key than the
    job's would not free enough capacity.
    """
    queue, scratch, log = state.queue, state.scratch, state.log
    picks, instances, looked = scratch.picks, queue.buckets[at].instances, 0
    # A single instance that does not fit: no machine hosts it.
    count = instances - missing_in(state.cluster, state.cluster.now, queue, at) if instances > 1 else 0
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
    _ripen(state)
    offer_all(state)
    at = next_offer(state)
    while at != NONE:
        looked = 0
        fitting = fits_free(cluster, queue, at)
        if not fitting and not _is_stuck(state, at):
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

"""Gangs that fit by no choice of preemptible runs are stuck: they are tried again only where something changed.

A gang of a bucket is stuck if it does not fit the free capacity together with that of all preemptible runs with a worse
sort key. Later it can fit only with more on machines that changed, with a first job of a better key, or once a run's
key became worse than the job's.
"""

import math

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import FIXED, LAS, LAS_TIME, NONE, SRTF, Records
from scheduler_core.kernels.rooms import hosted, hosted_pooled, note_change, open_to
from scheduler_core.kernels.starts import RUNNING, key_from
from scheduler_core.kernels.state import Rules, State

MARGIN = 1e-9
"""Relative margin of the time at which a key becomes worse, far above the rounding of keys and times."""


@kernel
def is_ripe(state: State, start_s: float) -> bool:
    """Return whether a run that started at `start_s` has run for a quantum and so may be preempted."""
    return bool(state.queue.tally[0].now_s - start_s >= state.rules.quantum_s)


@kernel
def key_now(state: State, run: Records) -> float:
    """Return the sort key that the job of a current run, an entry of `Log.active`, would have if preempted now."""
    so_far_s = state.queue.tally[0].now_s - run.start_s
    attained_s = run.attained_s + max(so_far_s - run.owed_s, 0.0)
    owed_s = max(run.owed_s - so_far_s, 0.0) - state.rules.restart_cost_s
    return float(key_from(state.rules, run.base, attained_s, owed_s, run.spread, run.arrive_s))


@kernel
def ripen(state: State) -> None:
    """Note the machines of the runs that have become preemptible since the last round."""
    log, tally = state.log, state.queue.tally[0]
    while tally.ripe < tally.runs and is_ripe(state, log.runs[tally.ripe].start_s):
        if log.runs[tally.ripe].ending == RUNNING:
            for place in range(log.runs[tally.ripe].first_host, log.runs[tally.ripe + 1].first_host):
                note_change(state.cluster, state.queue, log.hosts[place])
        tally.ripe += 1


@kernel
def _rises(rules: Rules) -> bool:
    """Return whether the sort key of a job may become worse while it runs."""
    return bool(rules.policy != SRTF and rules.policy != FIXED)


@kernel
def _worse_at_s(state: State, run: Records, key: float, rank: float) -> float:
    """Return a time before which the sort key of a current run, `key` now, does not become worse than `rank`."""
    rules, now_s = state.rules, state.queue.tally[0].now_s
    in_s = 0.0
    if rules.policy == LAS_TIME:
        in_s = rank - key
    elif rules.policy == LAS:
        in_s = (rank - key) * 1000 / run.base
    return float(now_s + in_s - MARGIN * (abs(rank) + now_s + 1.0))


@kernel
def give_up(state: State, at: int, missing: int) -> None:
    """Remember that the first job of bucket `at` is stuck, with `missing` of its instances not fitting.

    `bare` holds the free capacity if all runs with a worse key were stopped.
    """
    queue, log, tally, bucket = state.queue, state.log, state.queue.tally[0], state.queue.buckets[at]
    row = at % len(state.scratch.hosted_for)
    state.scratch.hosted_for[row] = at
    for machine in range(len(state.scratch.hosted[row])):
        could = open_to(state.cluster, machine, bucket.gpu_type)
        count = hosted(state.scratch.bare, machine, queue, at, bucket.instances) if could else 0
        state.scratch.hosted[row, machine] = count
    bucket.stuck_at = tally.changes
    bucket.stuck_missing = missing
    bucket.stuck_rank = queue.jobs[bucket.top].rank
    bucket.stuck_until_s = math.inf
    for slot in range(tally.running if _rises(state.rules) else 0):
        run = log.active[slot]
        if is_ripe(state, run.start_s):
            key = key_now(state, run)
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
        if is_ripe(state, run.start_s):
            key = key_now(state, run)
            if key > bucket.stuck_rank:
                for resource in range(3):
                    reach[0, resource] += queue.units[run.bucket, resource] * log.counts[place]
            elif _rises(state.rules):
                bucket.stuck_until_s = min(bucket.stuck_until_s, _worse_at_s(state, run, key, bucket.stuck_rank))
        place = log.older[place]
    return int(hosted_pooled(reach, 0, queue.units, at, bucket.instances, 3))


@kernel
def is_stuck(state: State, at: int) -> bool:
    """Return whether the first job of bucket `at` surely fits by no choice of preemptible runs."""
    queue, cluster, bucket = state.queue, state.cluster, state.queue.buckets[at]
    tally, missing = queue.tally[0], bucket.stuck_missing
    if cluster.now.devices.shape[1] > 0:
        return False  # not remembered if GPUs are shared by device
    if bucket.stuck_at == NONE or tally.changes - bucket.stuck_at > len(cluster.changed):
        return False
    if queue.jobs[bucket.top].rank < bucket.stuck_rank or tally.now_s > bucket.stuck_until_s:
        return False
    row = at % len(state.scratch.hosted_for)
    known = state.scratch.hosted_for[row] == at
    for change in range(bucket.stuck_at, tally.changes):
        machine = cluster.changed[change % len(cluster.changed)]
        if open_to(cluster, machine, bucket.gpu_type):
            count = _reachable_on(state, machine, at)
            missing -= count
            if known:
                missing += state.scratch.hosted[row, machine]
                state.scratch.hosted[row, machine] = count
    bucket.stuck_at = tally.changes if known or missing > 0 else NONE
    bucket.stuck_missing = missing
    return bool(missing > 0)

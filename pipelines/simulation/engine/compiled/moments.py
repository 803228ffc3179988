"""Moments: when something happens next, and what happens then before the round: ends, outages, arrivals.

Called by `loop`.
"""

import math

from pipelines.simulation.engine.compiled.starts import COMPLETED, FAILED, INTERRUPTED, KILLED, stop, wait
from pipelines.simulation.engine.compiled.waiting import smallest_gpus
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.placing import share_free
from scheduler_core.kernels.state import State

MILLI = 1000


@kernel
def _tick_s(now_s: float, quantum_s: float) -> float:
    """Return the first whole multiple of the quantum after now."""
    number = math.floor(now_s / quantum_s)
    while number * quantum_s <= now_s:
        number += 1
    return float(number * quantum_s)


@kernel
def next_moment(state: State) -> float:
    """Return when something happens next, infinity where nothing does."""
    tally, jobs, breaks = state.queue.tally[0], state.queue.jobs, state.breaks
    moment_s = math.inf
    if tally.running > 0:
        moment_s = state.log.ends[0].end_s
        if state.rules.preempting and tally.waiting > 0:
            moment_s = min(moment_s, _tick_s(tally.now_s, state.rules.quantum_s))
    if tally.arrivals < len(jobs):
        moment_s = min(moment_s, jobs[tally.arrivals].arrive_s)
    if tally.ups < len(breaks.up_s):
        moment_s = min(moment_s, breaks.up_s[tally.ups])
    if tally.downs < len(breaks.down_s):
        moment_s = min(moment_s, breaks.down_s[tally.downs])
    return float(moment_s)


@kernel
def count_stranded(state: State, until_s: float) -> None:
    """Count the GPUs that stand free until then though a waiting gang asks for no more of them."""
    tally = state.queue.tally[0]
    asked = smallest_gpus(state.queue)
    free = state.cluster.total_free[2]
    if 0 < asked <= free:
        tally.stranded_gpu_s += free / MILLI * (until_s - tally.now_s)


@kernel
def end_runs(state: State) -> None:
    """End what was planned to end by now; the killed wait again, at their full request."""
    queue, log, tally = state.queue, state.log, state.queue.tally[0]
    while tally.running > 0 and log.ends[0].end_s <= tally.now_s:
        number = log.ends[0].run
        row = queue.jobs[log.runs[number].job]
        if row.dies and not row.full:
            job = stop(state, number, KILLED)
            row.full = True
            row.left_s = row.run_s
            row.attained_s = 0.0
            wait(state.rules, queue, len(state.cluster.free), job)
        else:
            stop(state, number, FAILED if row.fails else COMPLETED)
            row.finished_s = tally.now_s


@kernel
def bring_up(state: State) -> None:
    """End the outages that are over by now."""
    breaks, cluster, tally = state.breaks, state.cluster, state.queue.tally[0]
    while tally.ups < len(breaks.up_s) and breaks.up_s[tally.ups] <= tally.now_s:
        machine = breaks.up[tally.ups]
        tally.ups += 1
        cluster.away[machine] -= 1
        if cluster.away[machine] == 0:
            for resource in range(3):
                cluster.free[machine, resource] = cluster.capacity[machine, resource]
                cluster.total_free[resource] += cluster.capacity[machine, resource]
            cluster.room[machine] = share_free(cluster.free, machine, cluster.largest)
            tally.releases += 1
            tally.settled = 0


@kernel
def _interrupt(state: State) -> None:
    """Stop every run with an instance on a machine that is away; its job waits again, the whole run ahead."""
    queue, log, picks, tally = state.queue, state.log, state.scratch.picks, state.queue.tally[0]
    hit = 0
    for end in range(tally.running):
        number = log.ends[end].run
        for place in range(log.runs[number].first_host, log.runs[number + 1].first_host):
            if state.cluster.away[log.hosts[place]] > 0:
                picks[hit].what = number
                hit += 1
                break
    for place in range(hit):
        job = stop(state, picks[place].what, INTERRUPTED)
        row = queue.jobs[job]
        row.left_s = row.run_s if row.full else row.granted_run_s
        row.attained_s = 0.0
        wait(state.rules, queue, len(state.cluster.free), job)


@kernel
def take_down(state: State) -> None:
    """Begin the outages that are due by now: nobody stays on the machines, and what they have is out of reach."""
    breaks, cluster, tally = state.breaks, state.cluster, state.queue.tally[0]
    first = tally.downs
    while tally.downs < len(breaks.down_s) and breaks.down_s[tally.downs] <= tally.now_s:
        cluster.away[breaks.down[tally.downs]] += 1
        tally.downs += 1
    if tally.downs > first:
        _interrupt(state)
    for outage in range(first, tally.downs):
        machine = breaks.down[outage]
        for resource in range(3):
            cluster.total_free[resource] -= cluster.free[machine, resource]
            cluster.free[machine, resource] = 0
        cluster.room[machine] = 0.0


@kernel
def admit(state: State) -> None:
    """Let those that have arrived by now wait, but for those that would never fit."""
    queue, tally = state.queue, state.queue.tally[0]
    while tally.arrivals < len(queue.jobs) and queue.jobs[tally.arrivals].arrive_s <= tally.now_s:
        job = tally.arrivals
        tally.arrivals += 1
        if queue.buckets[queue.jobs[job].full_bucket].possible:
            wait(state.rules, queue, len(state.cluster.free), job)
        else:
            queue.jobs[job].never_fits = True

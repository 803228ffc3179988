"""The event loop of shared machines: arrivals and ends, and in every minute new demand, samples and reservations.

Between events every job runs at a constant speed, so ends are exact.
"""

import math
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending
from pipelines.simulation.shared.reserving import (
    copy_reservation,
    find_free,
    forget_samples,
    place,
    request_back,
    reserve,
    sample,
)
from pipelines.simulation.shared.state import State
from pipelines.simulation.shared.use import (
    MINUTE_S,
    WORK_SLACK,
    job_to_kill,
    set_needs,
    share_out,
    step_noise,
    until_peak_s,
)
from scheduler_core.kernels.kernel import kept, kernel

__all__ = ["advance"]

RUNNING: Final = np.int8(Ending.RUNNING)
COMPLETED: Final = np.int8(Ending.COMPLETED)
KILLED: Final = np.int8(Ending.KILLED)


@kernel
def _enqueue(state: State, job: int) -> None:
    """Insert a job into the queue, which is sorted by key and then serial."""
    queue, jobs = state.queue, state.jobs
    at = queue.tally[0].waiting
    while at > 0:
        before = queue.waiting[at - 1]
        if jobs[before].key < jobs[job].key or (jobs[before].key == jobs[job].key and before < job):
            break
        queue.waiting[at] = before
        at -= 1
    queue.waiting[at] = job
    queue.tally[0].waiting += 1


@kernel
def _log_start(state: State, job: int, now_s: float) -> None:
    """Write a new run to the log, on the machines that `place` chose."""
    row, tally, log = state.jobs[job], state.queue.tally[0], state.log
    run = log.runs[tally.runs]
    run.job, run.start_s, run.full, run.ending, run.first = job, now_s, row.full, RUNNING, tally.hosts
    row.run = tally.runs
    for number in range(row.instances):
        instance = state.instances[row.first + number]
        instance.machine = log.machine[tally.hosts] = state.queue.machine[number]
        instance.devices = 0
        instance.used[0] = instance.used[1] = 0.0
        for at in range(state.device.shape[1]):
            state.device[row.first + number, at] = state.queue.picked[number, at]
            instance.devices += state.queue.picked[number, at] >= 0
        tally.hosts += 1
    tally.runs += 1


@kernel
def _start(state: State, job: int, now_s: float) -> None:
    """Start a waiting job on the machines that `place` chose."""
    queue, tally, at = state.queue, state.queue.tally[0], 0
    while queue.waiting[at] != job:
        at += 1
    for later in range(at, tally.waiting - 1):
        queue.waiting[later] = queue.waiting[later + 1]
    queue.running[tally.running] = job
    tally.waiting -= 1
    tally.running += 1
    row = state.jobs[job]
    row.left_s, row.age, row.speed = row.run_s, 0, 1.0
    copy_reservation(row.prior, row.reserved)
    if row.full:
        request_back(row)
    _log_start(state, job, now_s)
    forget_samples(state, job)
    step_noise(state, job)
    set_needs(state, job)


@kernel
def _stop(state: State, job: int, ending: int, now_s: float) -> None:
    queue, tally = state.queue, state.queue.tally[0]
    at = 0
    while queue.running[at] != job:
        at += 1
    for later in range(at, tally.running - 1):
        queue.running[later] = queue.running[later + 1]
    tally.running -= 1
    run = state.log.runs[state.jobs[job].run]
    run.end_s, run.ending = now_s, ending


@kernel
def _kill_over(state: State, now_s: float) -> bool:
    """Kill jobs until memory suffices; return whether one was killed. Killed jobs are queued again at their request."""
    killed = False
    while True:
        job, tally = job_to_kill(state), state.queue.tally[0]
        if job < 0 or tally.kills == len(state.log.runs) - len(state.jobs):
            return killed
        killed = True
        tally.kills += 1
        _stop(state, job, KILLED, now_s)
        row = state.jobs[job]
        row.full = True
        for at in range(4):
            row.sized[at] = row.request[min(at, 2)]
        _enqueue(state, job)


@kernel
def _round(state: State, now_s: float) -> None:
    """Start waiting jobs in queue order; later jobs overtake a job that does not fit."""
    find_free(state, now_s)
    queue, at = state.queue, 0
    while at < queue.tally[0].waiting:
        job = queue.waiting[at]
        if place(state, job):
            _start(state, job, now_s)
        else:
            at += 1


@kernel
def _work(state: State, step_s: float) -> None:
    """Let every running job work for a while, and meter its use."""
    for each in range(state.queue.tally[0].running):
        job = state.jobs[state.queue.running[each]]
        job.left_s -= job.speed * step_s
        job.lost_s += (1.0 - job.speed) * step_s
        for place_ in range(job.first, job.first + job.instances):
            for at in range(2):
                state.instances[place_].used[at] += state.instances[place_].share[at] * step_s


@kernel
def _may_start(state: State, now_s: float, killed: bool) -> bool:
    """Return whether a waiting job may start though nothing ends or arrives: after a kill, or when a machine opens."""
    opens = False
    for at in range(len(state.machines)):
        opens = opens or state.machines[at].closed_until_s > now_s
    return bool(state.queue.tally[0].waiting > 0 and (killed or opens))


@kernel
def _next_s(state: State, now_s: float, minute_s: float, killed: bool) -> float:
    """Return the time of the next event; infinity if nothing more happens."""
    tally, jobs = state.queue.tally[0], state.jobs
    next_s = minute_s if tally.running > 0 or _may_start(state, now_s, killed) else math.inf
    if tally.arrived < len(jobs):
        next_s = min(next_s, jobs[tally.arrived].arrive_s)
    for each in range(tally.running):
        job = jobs[state.queue.running[each]]
        peak_s = until_peak_s(job)
        next_s = min(next_s, now_s + (peak_s if peak_s > 0.0 else max(job.left_s, 0.0)) / job.speed)
    return next_s


@kernel
def _end_and_arrive(state: State, now_s: float) -> None:
    """End the jobs that have no work left, and queue those that have arrived."""
    tally, jobs, at = state.queue.tally[0], state.jobs, 0
    while at < tally.running:
        job = state.queue.running[at]
        if jobs[job].left_s <= WORK_SLACK * max(1.0, jobs[job].run_s):
            _stop(state, job, COMPLETED, now_s)
        else:
            at += 1
    while tally.arrived < len(jobs) and jobs[tally.arrived].arrive_s <= now_s:
        _enqueue(state, tally.arrived)
        tally.arrived += 1


@kernel
def _begin_minute(state: State, now_s: float) -> None:
    """Sample every running job, size its reservation, and change its demand."""
    for each in range(state.queue.tally[0].running):
        job = state.queue.running[each]
        state.jobs[job].age += 1
        sample(state, job, now_s)
        if state.rules.reclaims:
            reserve(state, job, now_s)
        step_noise(state, job)
        set_needs(state, job)


@kept
def advance(state: State) -> None:
    """Simulate until the horizon, or until the last event if it is infinite."""
    tally, rules, now_s, minute_s = state.queue.tally[0], state.rules, 0.0, MINUTE_S
    killed = False
    while True:
        next_s = _next_s(state, now_s, minute_s, killed)
        if next_s > rules.horizon_s or next_s == math.inf:
            break
        _work(state, next_s - now_s)
        now_s = next_s
        _end_and_arrive(state, now_s)
        if now_s >= minute_s:
            _begin_minute(state, now_s)
            minute_s = MINUTE_S * (math.floor(now_s / MINUTE_S) + 1.0)
        _round(state, now_s)
        killed = _kill_over(state, now_s)
        if killed:
            _round(state, now_s)
            killed = _kill_over(state, now_s)
        share_out(state, now_s)
    end_s = rules.horizon_s if rules.horizon_s < math.inf else now_s
    _work(state, end_s - now_s)
    for each in range(tally.running):
        job = state.jobs[state.queue.running[each]]
        state.log.runs[job.run].end_s = end_s + max(job.left_s, WORK_SLACK) / job.speed

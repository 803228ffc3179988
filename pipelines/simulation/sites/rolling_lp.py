"""The rolling-horizon linear programme: each hour, plan all waiting jobs over 48 hours on forecasts, by HiGHS.

Waiting jobs have starts in blocks of 3 hours; the starts of the first block are carried out. Called by the study.
"""

from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from pipelines.simulation.sites.environment import begun, rows_of
from pipelines.simulation.sites.loop import State, act, prepare
from pipelines.simulation.sites.weeks import Weeks, part
from scheduler_core.kernels.sites.value import DAY, STEPS_PER_H
from scheduler_core.types import FloatArray, IntArray

__all__ = ["rolling_lp"]

BLOCK: Final = 3 * STEPS_PER_H
BLOCKS: Final = 16
STARTS: Final = DAY // BLOCK
MOST_JOBS: Final = 60
"""Most urgent jobs that are planned; the others wait."""


def rolling_lp(weeks: Weeks) -> State:
    """Return the state after each week has run with the rolling programme."""
    states = [_run(part(weeks, np.array([b]))) for b in range(len(weeks.arrive))]
    whole = begun(weeks)
    for b, each in enumerate(states):
        whole.start[b], whole.site[b] = each.start[0], each.site[0]
    return whole


def _run(weeks: Weeks) -> State:
    state, (mask, rows) = begun(weeks), rows_of(weeks)
    sites, planned_at = weeks.capacity.shape[1], -1
    plan, earned = np.full(weeks.arrive.shape[1], sites), np.zeros((1, sites))
    while prepare(weeks, state, mask, rows):
        hour = int(state.tally[0, 0]) // STEPS_PER_H
        if hour != planned_at:
            planned_at = hour
            plan[:] = sites
            _plan(weeks, state, plan)
        head = state.head[0]
        wanted = np.where(head >= 0, plan[np.maximum(head, 0)], sites)
        legal = mask[0, np.arange(sites), wanted]
        act(weeks, state, np.where(legal, wanted, sites)[None], earned)
    return state


def _plan(weeks: Weeks, state: State, plan: IntArray) -> None:
    """Write the sites of the jobs that should start now."""
    now, sites = int(state.tally[0, 0]), weeks.capacity.shape[1]
    jobs = state.waiting[0, : state.tally[0, 1]]
    jobs = jobs[state.start[0, jobs] < 0][:MOST_JOBS]
    gpus, steps = weeks.jobs.gpus[0, jobs], weeks.jobs.steps[0, jobs]
    usd = _gains(weeks, state, jobs, now)
    late = np.arange(STARTS) * BLOCK + now >= weeks.jobs.due[0, jobs][:, None]
    usd[np.repeat(late[:, None, :], sites, axis=1)] = -1.0
    job, site, begin = np.nonzero(usd > 0.0)
    if not len(job):
        return
    blocks = np.minimum(begin + -(-steps[job] // BLOCK), BLOCKS) - begin
    entry = np.repeat(np.arange(len(job)), blocks)
    block = begin[entry] + np.arange(len(entry)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    limits = csr_array(
        (
            np.concatenate([np.ones(len(job)), gpus[job][entry].astype(np.float64)]),
            (
                np.concatenate([job, len(jobs) + site[entry] * BLOCKS + block]),
                np.concatenate([np.arange(len(job)), entry]),
            ),
        ),
        shape=(len(jobs) + sites * BLOCKS, len(job)),
    )
    most = np.concatenate([np.ones(len(jobs)), _room(state, now).ravel()])
    found = milp(-usd[job, site, begin], bounds=Bounds(0, 1), constraints=LinearConstraint(limits, -np.inf, most))
    if found.success:
        starts = (found.x > 0.5) & (begin == 0)
        plan[jobs[job[starts]]] = site[starts]


def _gains(weeks: Weeks, state: State, jobs: IntArray, now: int) -> FloatArray:
    """Return the expected gain of each job at each site at the begin of each block (j, S, STARTS)."""
    cost = np.diff(state.sums[0], axis=1)
    three = np.concatenate([np.zeros((len(cost), 1)), np.cumsum(np.tile(cost, (1, 3)), axis=1)], axis=1)
    begin, steps = np.arange(STARTS) * BLOCK, weeks.jobs.steps[0, jobs]
    days, rest = steps // DAY, steps % DAY
    usd = (
        three[:, begin[None, :] + rest[:, None]]
        - three[:, begin][:, None, :]
        + days[:, None] * three[:, DAY][:, None, None]
    )
    gain = weeks.jobs.gpus[0, jobs] * (weeks.worth_usd[0] * steps)
    gain = gain[:, None, None] - weeks.jobs.gpus[0, jobs][:, None, None] * usd.transpose(1, 0, 2)
    gain = gain - weeks.jobs.move_usd[0, jobs][:, :, None]
    met = now + begin[None, :] + steps[:, None] <= weeks.jobs.due[0, jobs][:, None]
    return np.asarray(gain + weeks.miss_usd[0] * met[:, None, :], dtype=np.float64)


def _room(state: State, now: int) -> FloatArray:
    """Return the GPUs forecast to be free at each site at the begin of each block (S, BLOCKS)."""
    ends = state.ends[0, now + 1 : now + 1 + BLOCK * (BLOCKS - 1)]
    freed = np.zeros((BLOCKS, state.free.shape[1]))
    freed[1 : 1 + -(-len(ends) // BLOCK)] = (
        np.add.reduceat(ends, np.arange(0, len(ends), BLOCK), axis=0) if len(ends) else 0
    )
    return np.asarray((state.free[0] + np.cumsum(freed, axis=0)).T, dtype=np.float64)

"""Decide for all waiting jobs of one step, by earliest due date, with any of the policies.

The same function decides in the simulation and for `POST /v1/route`. Called by `scheduler_core.planning.sites` and by
`pipelines.simulation.sites`.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from scheduler_core.kernels.kernel import SOURCES, Compiled, digest, kept, kernel
from scheduler_core.kernels.sites.rolling import HOURS, plan_one
from scheduler_core.kernels.sites.rules import RULES, by_rule
from scheduler_core.kernels.sites.scoring import FEATURES, by_score, fill_job, fill_site
from scheduler_core.kernels.sites.value import STEPS_PER_H, WAIT, Jobs, Outlook, best_later_usd, gain_usd
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "ROLLING",
    "SCORER",
    "Scratch",
    "crowding_of",
    "decide",
    "decide_in",
    "describe",
    "features_in",
    "scratch_of",
]

ROLLING, SCORER = len(RULES), len(RULES) + 1


class Scratch(NamedTuple):
    """Memory for decisions.

    `ends` (HOURS, S) are GPUs forecast to become free within each hour from now; `room` (S, HOURS); `later_usd` (n,)
    with the step `later_at` (n,) at which it was computed; `row` (features,).
    """

    ends: IntArray
    room: IntArray
    later_usd: FloatArray
    later_at: IntArray
    row: FloatArray


def scratch_of(batch: int, jobs: int, sites: int) -> Scratch:
    """Return the memory for a batch, each array with a leading axis."""
    return Scratch(
        ends=np.zeros((batch, HOURS, sites), dtype=np.int64),
        room=np.zeros((batch, sites, HOURS), dtype=np.int64),
        later_usd=np.zeros((batch, jobs)),
        later_at=np.full((batch, jobs), -1, dtype=np.int64),
        row=np.zeros((batch, len(FEATURES))),
    )


@kernel
def later_of(jobs: Jobs, seen: Outlook, now: int, job: int, scratch: Scratch) -> float:
    """Return a job's best later gain, computed at most once an hour."""
    if scratch.later_at[job] < now // STEPS_PER_H:
        scratch.later_at[job] = now // STEPS_PER_H
        scratch.later_usd[job] = best_later_usd(jobs, seen, now, job)
    usd: float = scratch.later_usd[job]
    return usd


@kernel
def crowding_of(jobs: Jobs, seen: Outlook, waiting: IntArray, count: int) -> float:
    """Return the waiting GPU time over that of all GPUs in a day."""
    steps, capacity = 0, 0
    for place in range(count):
        steps += jobs.gpus[waiting[place]] * jobs.steps[waiting[place]]
    for site in range(len(seen.capacity)):
        capacity += seen.capacity[site]
    return steps / (capacity * 24.0 * STEPS_PER_H)


@kernel
def most_free(seen: Outlook) -> int:
    """Return the free GPUs of the site with most of them."""
    most = 0
    for site in range(len(seen.free)):
        most = max(most, seen.free[site])
    return most


@kernel
def set_room(seen: Outlook, scratch: Scratch) -> None:
    """Set the planned room: GPUs free now, and those of running jobs from their predicted ends on."""
    for site in range(len(seen.free)):
        free = seen.free[site]
        for hour in range(HOURS):
            scratch.room[site, hour] = free
            free += scratch.ends[hour, site]


@kernel
def decide_in(
    rule: int,
    params: FloatArray,
    jobs: Jobs,
    seen: Outlook,
    now: int,
    waiting: IntArray,
    count: int,
    scratch: Scratch,
    chosen: IntArray,
) -> None:
    """Write the site where each of the first `count` waiting jobs starts now, or `WAIT`, and take its free GPUs.

    `waiting` holds rows of `jobs` in the order of decision.
    """
    crowding = crowding_of(jobs, seen, waiting, count) if rule == SCORER else 0.0
    if rule == ROLLING:
        set_room(seen, scratch)
    for place in range(count):
        job = waiting[place]
        if rule == ROLLING:
            site = plan_one(jobs, seen, now, job, scratch.room, params)
        elif most_free(seen) < jobs.gpus[job]:
            site = WAIT
        elif rule == SCORER:
            later_usd = later_of(jobs, seen, now, job, scratch)
            site = by_score(params, scratch.row, jobs, seen, now, job, later_usd, crowding)
        else:
            site = by_rule(rule, jobs, seen, now, job)
        chosen[place] = site
        if site != WAIT:
            seen.free[site] -= jobs.gpus[job]


@kernel
def features_in(
    rows: FloatArray, jobs: Jobs, seen: Outlook, now: int, job: int, crowding: float, scratch: Scratch
) -> None:
    """Write the features (S, features) of starting a job now at each site that has room; other rows stay."""
    later_usd = later_of(jobs, seen, now, job, scratch)
    for site in range(len(seen.free)):
        if seen.free[site] >= jobs.gpus[job]:
            mean_usd = fill_job(rows[site], jobs, seen, now, job, crowding)
            fill_site(rows[site], jobs, seen, now, job, site, later_usd, mean_usd)


def _deciding(sources: str) -> Compiled:
    @kept
    def decide(
        rule: int,
        params: FloatArray,
        jobs: Jobs,
        seen: Outlook,
        now: int,
        waiting: IntArray,
        count: int,
        scratch: Scratch,
        chosen: IntArray,
    ) -> None:
        _ = sources  # part of the cache key of the compiled code
        decide_in(rule, params, jobs, seen, now, waiting, count, scratch, chosen)

    return decide


def _describing(sources: str) -> Compiled:
    @kept
    def describe(
        jobs: Jobs,
        seen: Outlook,
        now: int,
        waiting: IntArray,
        scratch: Scratch,
        low: FloatArray,
        high: FloatArray,
        known: BoolArray,
        gains: FloatArray,
    ) -> None:
        """Write all expected gains (n, S), and whether the features of a job's starts lie within `low` and `high`.

        Without bounds every job is `known`; starts without room are not looked at.
        """
        _ = sources  # part of the cache key of the compiled code
        crowding = crowding_of(jobs, seen, waiting, len(waiting))
        for place in range(len(waiting)):
            job = waiting[place]
            known[job] = True
            for site in range(len(seen.free)):
                gains[job, site] = gain_usd(jobs, seen, now, job, site, 0)
            if len(low) == 0 or most_free(seen) < jobs.gpus[job]:
                continue
            later_usd = later_of(jobs, seen, now, job, scratch)
            mean_usd = fill_job(scratch.row, jobs, seen, now, job, crowding)
            for site in range(len(seen.free)):
                if seen.free[site] >= jobs.gpus[job]:
                    fill_site(scratch.row, jobs, seen, now, job, site, later_usd, mean_usd)
                    for each in range(len(low)):
                        known[job] &= low[each] <= scratch.row[each] <= high[each]

    return describe


describe = _describing(SOURCES + digest(Path(__file__).parent))
decide = _deciding(SOURCES + digest(Path(__file__).parent))

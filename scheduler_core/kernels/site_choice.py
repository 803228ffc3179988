"""Decide for all waiting jobs of one step, by earliest due date: simple rules, or a learnt score.

The same function decides in the simulation and for `POST /v1/route`.
"""

from typing import Final, NamedTuple

import numpy as np

from scheduler_core.kernels.kernel import kept, kernel
from scheduler_core.kernels.site_value import (
    FEATURES,
    STEPS_PER_H,
    WAIT,
    Jobs,
    Outlook,
    best_later_usd,
    by_score,
    fill_job,
    fill_site,
    gain_usd,
)
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "RULES",
    "SCORER",
    "Scratch",
    "crowding_of",
    "decide",
    "decide_in",
    "describe",
    "features_in",
    "scratch_of",
]

RULES: Final = ("local", "least_loaded", "greedy")
"""Names of the rules; a rule's code is its place."""

LOCAL, LEAST_LOADED, GREEDY = range(len(RULES))


@kernel
def _preference(rule: int, jobs: Jobs, seen: Outlook, now: int, job: int, site: int) -> float:
    """Return how much a rule prefers a site; the largest is chosen."""
    if rule == LOCAL:
        return 1.0 if site == jobs.origin[job] else -1e300
    if rule == LEAST_LOADED:
        return float(seen.free[site] / seen.capacity[site])
    gain = gain_usd(jobs, seen, now, job, site, 0)
    return gain if gain > 0.0 else -1e300


@kernel
def by_rule(rule: int, jobs: Jobs, seen: Outlook, now: int, job: int) -> int:
    """Return the site at which a rule starts a job now, or `WAIT`.

    `GREEDY` takes the largest expected gain and waits if none is positive; the other rules never wait for cost.
    """
    best, found = -1e299, WAIT
    for site in range(len(seen.free)):
        if seen.free[site] >= jobs.gpus[job]:
            preference = _preference(rule, jobs, seen, now, job, site)
            if preference > best:
                best, found = preference, site
    return found


SCORER = len(RULES)


class Scratch(NamedTuple):
    """Memory for decisions: `later_usd` (n,), with the step `later_at` (n,) when it was computed; `row` (features,)."""

    later_usd: FloatArray
    later_at: IntArray
    row: FloatArray


def scratch_of(batch: int, jobs: int) -> Scratch:
    """Return the memory for a batch, each array with a leading axis."""
    return Scratch(
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
    """Return the GPU time of waiting jobs over the GPU time of all GPUs in a day."""
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
    for place in range(count):
        job = waiting[place]
        if most_free(seen) < jobs.gpus[job]:
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


decide = kept(decide_in.py_func)
"""`decide_in` for calls from Python."""


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

    Without bounds every job is `known`. Starts without room are ignored.
    """
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

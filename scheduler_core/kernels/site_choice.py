"""Decide for all waiting jobs of one step, by earliest due date: simple rules, the rolling plan, or a learnt score.

The same function decides in the simulation and for `POST /v1/route`.
"""

from typing import Final, NamedTuple

import numpy as np

from scheduler_core.kernels.kernel import kept, kernel
from scheduler_core.kernels.site_value import (
    DAY,
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
    latest_wait,
)
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "ROLLING",
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

RULES: Final = ("local", "random", "round_robin", "least_loaded", "cheapest", "cleanest", "greedy")
"""Names of the rules; a rule's code is its place."""

LOCAL, RANDOM, ROUND_ROBIN, LEAST_LOADED, CHEAPEST, CLEANEST, GREEDY = range(len(RULES))


@kernel
def _hashed(job: int, now: int) -> int:
    """Return a pseudo-random number from 0 to 2^16 - 1, the same for the same job and step."""
    mixed = ((job + 1) * 40503 + (now + 1) * 30029) & 0xFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 5333) & 0xFFFFFFF
    return (mixed ^ (mixed >> 9)) & 0xFFFF


@kernel
def _preference(rule: int, jobs: Jobs, seen: Outlook, now: int, job: int, site: int) -> float:
    """Return how much a rule prefers a site; the largest is chosen."""
    sites = len(seen.free)
    if rule == LOCAL:
        return 1.0 if site == jobs.origin[job] else -1e300
    if rule == RANDOM:
        return -float((site + _hashed(job, now)) % sites)
    if rule == ROUND_ROBIN:
        return -float((site - job) % sites)
    if rule == LEAST_LOADED:
        return float(seen.free[site] / seen.capacity[site])
    if rule == CHEAPEST:
        return -float(seen.price[site])
    if rule == CLEANEST:
        return -float(seen.carbon[site])
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


HOURS: Final = 48
"""Hours for which room is planned; a longer job is only checked within these hours."""


@kernel
def fits(room: IntArray, site: int, gpus: int, begin_h: int, hours: int) -> bool:
    """Return whether a site has planned room for GPUs during hours of the plan."""
    for hour in range(begin_h, min(begin_h + hours, HOURS)):  # noqa: SIM110 - numba has no generators
        if room[site, hour] < gpus:
            return False
    return True


@kernel
def take(room: IntArray, site: int, gpus: int, begin_h: int, hours: int) -> None:
    """Subtract GPUs from the planned room of a site."""
    for hour in range(begin_h, min(begin_h + hours, HOURS)):
        room[site, hour] -= gpus


@kernel
def plan_one(jobs: Jobs, seen: Outlook, now: int, job: int, room: IntArray, params: FloatArray) -> int:
    """Plan a job's start; return its site if the start is now, else `WAIT`.

    `params` are patience, the share of a job's worth that a day of waiting costs, and the bid price, the share of its
    worth that its gain must exceed. A start now needs free GPUs, a later one planned `room` (S, HOURS).
    """
    gpus, steps = jobs.gpus[job], jobs.steps[job]
    hours = -(-steps // STEPS_PER_H)
    worth = seen.worth_usd * gpus * steps
    best, found, begin_h = params[1] * worth, WAIT, 0
    for site in range(len(seen.free)):
        if gpus > seen.capacity[site]:
            continue
        for after_h in range(latest_wait(jobs, now, job) // STEPS_PER_H + 1):
            after = after_h * STEPS_PER_H
            gain = gain_usd(jobs, seen, now, job, site, after) - params[0] * worth * after / DAY
            if gain <= best or (after == 0 and seen.free[site] < gpus):
                continue
            if fits(room, site, gpus, after_h, hours):
                best, found, begin_h = gain, site, after_h
    if found == WAIT:
        return WAIT
    take(room, found, gpus, begin_h, hours)
    return found if begin_h == 0 else WAIT


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

"""Simple rules: where to start one job now. Each takes the first of equals, and waits if no site has room.

Called by `deciding`.
"""

from typing import Final

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.sites.value import WAIT, Jobs, Outlook, gain_usd

__all__ = ["RULES"]

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

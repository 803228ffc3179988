"""What a learnt policy sees of one job and one site, and the linear score of a start there; waiting scores 0.

Called by `deciding` and by the environment, which gives the same features to neural policies.
"""

import math
from typing import Final

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.sites.value import DAY, STEPS_PER_H, WAIT, Jobs, Outlook, gain_usd, run_usd
from scheduler_core.types import FloatArray

__all__ = ["FEATURES"]

FEATURES: Final = (
    "one",
    "gain",
    "lost_by_not_waiting",
    "free_here",
    "crowding",
    "free",
    "cheaper_than_mean",
    "cheaper_when_crowded",
    "urgency",
    "long",
    "wide",
    "at_origin",
    "hour_sin",
    "hour_cos",
    "cost_now",
    "cost_6h",
    "cost_12h",
    "cost_24h",
)
"""Features of a start, in column order; money is in shares of the worth of the job's GPU time."""

LIMIT: Final = 4.0


@kernel
def fill_job(row: FloatArray, jobs: Jobs, seen: Outlook, now: int, job: int, crowding: float) -> float:
    """Write the features of a job that are the same at every site; return its mean cost per GPU over the sites.

    `crowding` is the waiting GPU time over that of all GPUs in a day.
    """
    sites, steps = len(seen.free), jobs.steps[job]
    free, capacity, mean_usd = 0, 0, 0.0
    for site in range(sites):
        free += seen.free[site]
        capacity += seen.capacity[site]
        mean_usd += run_usd(seen.sums, site, 0, steps) / sites
    row[0] = 1.0
    row[4] = min(crowding, LIMIT)
    row[5] = free / capacity
    row[8] = 1.0 / (1.0 + max(jobs.due[job] - steps - now, 0) / (4.0 * STEPS_PER_H))
    row[9] = math.log2(float(steps)) / 8.0
    row[10] = jobs.gpus[job] / 32.0
    row[12] = math.sin(2.0 * math.pi * now / DAY)
    row[13] = math.cos(2.0 * math.pi * now / DAY)
    return mean_usd


@kernel
def fill_site(
    row: FloatArray, jobs: Jobs, seen: Outlook, now: int, job: int, site: int, later_usd: float, mean_usd: float
) -> None:
    """Write the features of starting a job at a site now; `later_usd` is the job's best later gain."""
    steps, gpus = jobs.steps[job], jobs.gpus[job]
    worth = seen.worth_usd * gpus * steps
    gain = gain_usd(jobs, seen, now, job, site, 0)
    row[1] = min(max(gain / worth, -LIMIT), LIMIT)
    row[2] = min(max((later_usd - gain) / worth, -LIMIT), LIMIT)
    row[3] = (seen.free[site] - gpus) / seen.capacity[site]
    row[6] = (mean_usd - run_usd(seen.sums, site, 0, steps)) / (seen.worth_usd * steps)
    row[6] = min(max(row[6], -LIMIT), LIMIT)
    row[7] = row[6] * row[4]
    row[11] = 1.0 if site == jobs.origin[job] else 0.0
    for place, step in enumerate((0, DAY // 4, DAY // 2, DAY - 1)):
        cost = (seen.sums[site, step + 1] - seen.sums[site, step]) / seen.worth_usd
        row[14 + place] = min(max(cost, -LIMIT), LIMIT)


@kernel
def by_score(
    weights: FloatArray,
    row: FloatArray,
    jobs: Jobs,
    seen: Outlook,
    now: int,
    job: int,
    later_usd: float,
    crowding: float,
) -> int:
    """Return the site with the largest linear score above 0, or `WAIT`; `row` is room for one row of features."""
    best, found = 0.0, WAIT
    mean_usd = fill_job(row, jobs, seen, now, job, crowding)
    for site in range(len(seen.free)):
        if seen.free[site] >= jobs.gpus[job]:
            fill_site(row, jobs, seen, now, job, site, later_usd, mean_usd)
            score = 0.0
            for place in range(len(row)):
                score += weights[place] * row[place]
            if score > best:
                best, found = score, site
    return found

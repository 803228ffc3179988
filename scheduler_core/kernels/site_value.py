"""Value of starting a job at a site now or later, from forecast cost, and the features that a learnt policy sees.

Time is in steps of 15 minutes from the start of the week.
"""

import math
from typing import Final, NamedTuple

from scheduler_core.kernels.kernel import kernel
from scheduler_core.types import FloatArray, IntArray

__all__ = ["DAY", "FEATURES", "STEPS_PER_H", "WAIT", "Jobs", "Outlook"]

STEPS_PER_H: Final = 4
DAY: Final = 96
"""Steps of a day, after which a forecast repeats."""

WAIT: Final = -1
"""The decision to start a job nowhere in this step."""


class Jobs(NamedTuple):
    """Columns of n jobs as an agent sees them.

    `gpus`, `steps` (predicted run time, at least 1), `due` (step by which the job should end), `origin` (site) and
    `move_usd` (n, S), the cost of moving a job's data to each site, 0 at its origin.
    """

    gpus: IntArray
    steps: IntArray
    due: IntArray
    origin: IntArray
    move_usd: FloatArray


class Outlook(NamedTuple):
    """State of S sites at one step.

    `sums` (S, 97) is the cumulative forecast cost of one running GPU over the next day, in USD; `free` and `capacity`
    are GPUs. `worth_usd` is the worth of one GPU for one step, and `miss_usd` that of meeting a due date.
    """

    sums: FloatArray
    free: IntArray
    capacity: IntArray
    worth_usd: float
    miss_usd: float


@kernel
def run_usd(sums: FloatArray, site: int, after: int, steps: int) -> float:
    """Return the forecast cost of one GPU that runs for `steps` steps at a site, `after` steps from now."""
    begin, rest = after % DAY, steps % DAY
    usd: float = steps // DAY * sums[site, DAY] - sums[site, begin]
    end = begin + rest
    if end <= DAY:
        return usd + float(sums[site, end])
    return usd + float(sums[site, DAY] + sums[site, end - DAY])


@kernel
def gain_usd(jobs: Jobs, seen: Outlook, now: int, job: int, site: int, after: int) -> float:
    """Return what starting a job at a site `after` steps from now is expected to add, compared with never running it.

    The worth of its GPU time, less energy, carbon and moving its data; plus `miss_usd` if it ends by its due date.
    """
    steps = jobs.steps[job]
    usd: float = jobs.gpus[job] * (seen.worth_usd * steps - run_usd(seen.sums, site, after, steps))
    usd -= jobs.move_usd[job, site]
    return usd + seen.miss_usd if now + after + steps <= jobs.due[job] else usd


@kernel
def latest_wait(jobs: Jobs, now: int, job: int) -> int:
    """Return how many steps, less than a day, a job can wait and still be expected to end by its due date."""
    steps: int = min(max(jobs.due[job] - jobs.steps[job] - now, 0), DAY - 1)
    return steps


@kernel
def best_later_usd(jobs: Jobs, seen: Outlook, now: int, job: int) -> float:
    """Return the largest gain of starting a job at any site at a later hour in time, or now, as if all had room."""
    best = -1e300
    for site in range(len(seen.free)):
        if jobs.gpus[job] <= seen.capacity[site]:
            for after in range(0, latest_wait(jobs, now, job) + 1, STEPS_PER_H):
                best = max(best, gain_usd(jobs, seen, now, job, site, after))
    return best


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

    `crowding` is the GPU time of waiting jobs over the GPU time of all GPUs in a day.
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

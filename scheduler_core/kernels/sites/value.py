"""Value of starting a job at a site now or later, from forecast cost; the columns that every decision reads.

Time is in steps of 15 minutes from the start of the week. Called by `rules`, `rolling` and `scoring`.
"""

from typing import Final, NamedTuple

from scheduler_core.kernels.kernel import kernel
from scheduler_core.types import FloatArray, IntArray

__all__ = ["DAY", "STEPS_PER_H", "WAIT", "Jobs", "Outlook"]

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

    `sums` (S, 97) is the cumulative forecast cost of one running GPU over the next day, in USD; `price` and `carbon`
    are the current values; `free` and `capacity` are GPUs. `worth_usd` is the worth of one GPU for one step, and
    `miss_usd` that of meeting a due date.
    """

    sums: FloatArray
    price: FloatArray
    carbon: FloatArray
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

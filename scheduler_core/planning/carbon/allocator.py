"""One round under a carbon budget: GPU counts first, then frequencies, by the source's marginal benefit.

The two stages and what they start from; the heap is in `climb`, a variant of ours that comes closer to the optimum in
`exchange`. Called by the simulation of elastic jobs, with the intensity of `intensity` and the jobs of `monitor`.
"""

from collections.abc import Collection
from typing import Final, Literal

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.climb import Climbed, PastBudget, climb
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.ladders import Charge, Period, count_ladders, frequency_ladders
from scheduler_core.types import IntArray

Stage = Literal["counts", "frequency"]
DID_NOT_FIT: Final = "their first GPUs did not fit"
STAGES: Final[tuple[Stage, ...]] = ("counts", "frequency")


def allocate(
    jobs: ElasticJobs,
    *,
    gpus: int,
    intensity_g_per_kwh: float,
    budget_g: float,
    period_s: float,
    pue: float = 1.0,
    start: Literal["optimal"] | int = "optimal",
    stages: Collection[Stage] = STAGES,
    past_budget: PastBudget = "next",
    charge: Charge = "job",
) -> CountsAndFrequencies:
    """Choose every job's GPUs and frequency for one period, emissions within it at most `budget_g`.

    `start` is f0, at which counts are chosen: each job's energy-optimal frequency, or one index into `mhz` for all.
    Without the stage `counts` jobs get first GPUs only (fixed counts are `rigid_gpus`), without `frequency` they stay
    at f0. A rigid job's first step is its whole count. Where not all jobs can have their first GPUs, what fits runs,
    by shortest T·C, and the rest is postponed, as a note says. Where the best step would pass the budget the next best
    that fits is taken (ours); ``past_budget="stop"`` ends the stage there, as the source does.

    ``charge="period"`` divides the benefit by emissions within the period (ours), which is what the budget bounds:
    where jobs outlast the period, a job that scales well has nearly the same emissions in all with any count, and takes
    all GPUs though each draws on the budget as any other. That shortens a round's plan if it is kept; over many rounds
    on tight budgets the source's charge, which prefers work that costs little energy, can be shorter.

    Equal steps go to the older job, then by what the jobs are: the order of rows changes nothing.

    Raises
    ------
    BadInput
        If an amount is negative or not a number, the period is not a positive time, or f0 is not a step.

    References
    ----------
    A patent on carbon-intensity-based GPU scheduling; benefit in the form of Gu et al.: PowerFlow, arXiv 2304.06381.
    """
    period = checked_period(
        gpus=gpus, intensity_g_per_kwh=intensity_g_per_kwh, budget_g=budget_g, period_s=period_s, pue=pue
    )
    order = canonical_order(jobs)
    sorted_jobs = jobs.rows(order)
    step = starting_step(sorted_jobs, start)
    climbed = climb(
        count_ladders(sorted_jobs, step, period, charge),
        gpus=gpus,
        budget_g=budget_g,
        past_budget=past_budget,
        least_only="counts" not in stages,
    )
    count, notes = climbed.choice, _said(climbed, "counts")
    if "frequency" in stages:
        ladders = frequency_ladders(sorted_jobs, count, step, period, charge)
        climbed = climb(ladders, gpus=gpus, budget_g=budget_g, past_budget=past_budget)
        step, notes = climbed.choice, notes + _said(climbed, "frequency")
    return planned(count, step, order, notes)


def planned(
    count: IntArray, step: IntArray, order: IntArray, notes: list[str], *, why: str = DID_NOT_FIT
) -> CountsAndFrequencies:
    """Return the plan of counts and frequencies found for rows in `order`, with a note on who is postponed and why."""
    waits = int((count == 0).sum())
    if waits:
        notes = [f"{waits} of {len(count)} jobs postponed: {why}", *notes]
    place = np.argsort(order)
    return CountsAndFrequencies(gpus=count[place], step=step[place], postponed=count[place] == 0, notes=tuple(notes))


def starting_step(jobs: ElasticJobs, start: Literal["optimal"] | int) -> IntArray:
    """Return f0 of every job (J,)."""
    if start == "optimal":
        return jobs.optimal_step
    if not 0 <= start < len(jobs.mhz):
        raise BadInput(f"start: found step {start}, expected 'optimal' or 0..{len(jobs.mhz) - 1}")
    return np.full(len(jobs), start, dtype=np.int64)


def canonical_order(jobs: ElasticJobs) -> IntArray:
    """Return the rows (J,), older jobs first, equal ages by content: jobs that tie still differ by nothing else."""
    content = np.hstack([jobs.steps_left[:, None], jobs.rigid_gpus[:, None], jobs.steps_per_s, jobs.perf, jobs.watts])
    keys = [(-age, row.tobytes()) for age, row in zip(jobs.age_s.tolist(), content, strict=True)]
    return np.asarray(sorted(range(len(jobs)), key=keys.__getitem__), dtype=np.int64)


def checked_period(*, gpus: int, intensity_g_per_kwh: float, budget_g: float, period_s: float, pue: float) -> Period:
    """Return the period, if its numbers are what they can be; an endless budget is one."""
    fine = {
        f"{gpus} GPUs, expected 0 or more": gpus >= 0,
        f"an intensity of {intensity_g_per_kwh} g/kWh, expected 0 or more": 0.0 <= intensity_g_per_kwh < np.inf,
        f"a budget of {budget_g} g, expected 0 or more": budget_g >= 0.0,
        f"a period of {period_s} s, expected more than 0": 0.0 < period_s < np.inf,
        f"a PUE of {pue}, expected 1 or more": 1.0 <= pue < np.inf,
    }
    for what, holds in fine.items():
        if not holds:
            raise BadInput(f"carbon budget: found {what}")
    return Period.of(intensity_g_per_kwh=intensity_g_per_kwh, pue=pue, period_s=period_s, budget_g=budget_g)


def _said(climbed: Climbed, stage: Stage) -> list[str]:
    if climbed.short_of_budget:
        return [f"{stage}: steps that pay were left for want of budget"]
    return [f"{stage}: steps that pay were left for want of GPUs"] if climbed.short_of_gpus else []

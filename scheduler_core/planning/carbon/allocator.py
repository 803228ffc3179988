"""One round under a carbon budget: choose GPU counts, then frequencies, by the carbon patent's marginal benefit.

The greedy climb of both stages is in `climb`; a closer approximation of the optimum (ours) is in `exchange`. Called by
`round` and by the carbon study.
"""

from collections.abc import Collection
from typing import Final, Literal

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.climb import (
    BudgetRule,
    Charge,
    Climbed,
    PastBudget,
    Period,
    climb,
    count_ladders,
    frequency_ladders,
)
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.types import IntArray

__all__ = ["BudgetRule", "Stage", "allocate"]

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
    rule: BudgetRule = "period",
) -> CountsAndFrequencies:
    """Choose every job's GPUs and frequency for one period, within the carbon budget `budget_g`.

    By the rule ``"to-completion"`` the budget limits the emissions until the jobs end at this intensity, as in the
    carbon patent: Σ I·P·T. By the rule ``"period"`` (ours) it limits those of the period: Σ I·P·min(T, period).

    `start` gives f0, the frequency at which counts are chosen: each job's energy-optimal frequency, or one index into
    `mhz` for all jobs. Without the stage `counts`, elastic jobs get their fewest allowed GPUs. Without the stage
    `frequency`, jobs stay at f0. A rigid job gets its whole count in its first step. If not all jobs can get their
    first GPUs, jobs with the smallest T·C (run time times emissions) start, the others are postponed, and a note
    reports it. If the best step would exceed the budget, the next best step that fits is taken (ours);
    ``past_budget="stop"`` ends the stage there, as in the patent.

    ``charge="job"`` divides a step's benefit by its added emissions until the job ends, as the patent does. A job that
    scales well then takes all GPUs, because its total emissions hardly change with the count, and uses up the period's
    budget. ``charge="period"`` (ours) divides by the added emissions that the budget limits. It gives shorter
    completion times if the plan is kept until the jobs end. Over many rounds with small budgets ``charge="job"`` can
    give shorter ones, because it prefers jobs that need little energy.

    In a tie the older job goes first, then the job whose numbers sort first, so the order of rows has no effect.

    Raises
    ------
    BadInput
        If an amount is negative or not a number, the period is not above 0, or `start` is not an index into `mhz`.

    References
    ----------
    A patent on carbon-intensity-based GPU scheduling; the formula of the benefit follows PowerFlow (arXiv 2304.06381).
    """
    period = checked_period(
        gpus=gpus,
        intensity_g_per_kwh=intensity_g_per_kwh,
        budget_g=budget_g,
        period_s=period_s,
        pue=pue,
        rule=rule,
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
    count, notes = climbed.choice, _limit_note(climbed, "counts")
    if "frequency" in stages:
        ladders = frequency_ladders(sorted_jobs, count, step, period, charge)
        climbed = climb(ladders, gpus=gpus, budget_g=budget_g, past_budget=past_budget)
        step, notes = climbed.choice, notes + _limit_note(climbed, "frequency")
    return planned(count, step, order, notes)


def planned(
    count: IntArray, step: IntArray, order: IntArray, notes: list[str], *, why: str = DID_NOT_FIT
) -> CountsAndFrequencies:
    """Return the plan in the caller's row order.

    Entry i of `count` and `step` is the GPU count and frequency index of the caller's row `order[i]`. If jobs are
    postponed, the first note gives their number and the reason `why`.
    """
    waits = int((count == 0).sum())
    if waits:
        notes = [f"{waits} of {len(count)} jobs postponed: {why}", *notes]
    place = np.argsort(order)
    return CountsAndFrequencies(gpus=count[place], step=step[place], postponed=count[place] == 0, notes=tuple(notes))


def starting_step(jobs: ElasticJobs, start: Literal["optimal"] | int) -> IntArray:
    """Return f0 of every job (J,): the index of the frequency at which its GPU count is chosen."""
    if start == "optimal":
        return jobs.optimal_step
    if not 0 <= start < len(jobs.mhz):
        raise BadInput(f"start: found step {start}, expected 'optimal' or 0..{len(jobs.mhz) - 1}")
    return np.full(len(jobs), start, dtype=np.int64)


def canonical_order(jobs: ElasticJobs) -> IntArray:
    """Return row indices (J,), oldest job first, ties by all other columns; jobs that still tie are identical."""
    content = np.hstack([jobs.steps_left[:, None], jobs.rigid_gpus[:, None], jobs.steps_per_s, jobs.perf, jobs.watts])
    keys = [(-age, row.tobytes()) for age, row in zip(jobs.age_s.tolist(), content, strict=True)]
    return np.asarray(sorted(range(len(jobs)), key=keys.__getitem__), dtype=np.int64)


def checked_period(
    *,
    gpus: int,
    intensity_g_per_kwh: float,
    budget_g: float,
    period_s: float,
    pue: float,
    rule: BudgetRule = "period",
) -> Period:
    """Return the period; raise `BadInput` if a number is out of range. The budget may be infinite."""
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
    return Period.of(intensity_g_per_kwh=intensity_g_per_kwh, pue=pue, period_s=period_s, budget_g=budget_g, rule=rule)


def _limit_note(climbed: Climbed, stage: Stage) -> list[str]:
    if climbed.short_of_budget:
        return [f"{stage}: stopped at the budget; worthwhile steps remain"]
    return [f"{stage}: no GPUs left; worthwhile steps remain"] if climbed.short_of_gpus else []

"""A variant of ours: the source's plan and relaxed plans, improved by exchanges between pairs of jobs.

The source ranks steps by benefit per gram alone and never takes anything back; here GPUs have a price as well, counts
and frequencies are chosen together, and any count may follow any other. Called as `allocator.allocate` is.
"""

from typing import Final, Literal

import numpy as np

from scheduler_core.planning.carbon.allocator import DID_NOT_FIT, allocate, canonical_order, checked_period, planned
from scheduler_core.planning.carbon.climb import BUDGET_MARGIN
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.emissions import completion_s, least_plan_s, mean_completion_s, remaining_s
from scheduler_core.planning.carbon.ladders import Period
from scheduler_core.planning.carbon.pairs import Limits, candidates, exchanged
from scheduler_core.planning.carbon.relaxation import Options, relax
from scheduler_core.types import FloatArray

PutOff = Literal["forced", "chosen"]
"""Postpone no more jobs than the source's procedure has to, or also jobs whose GPUs others use better."""

WHY: Final[dict[PutOff, str]] = {
    "forced": DID_NOT_FIT,
    "chosen": f"others make more of the GPUs and grams, or {DID_NOT_FIT}",
}
"""What is said of those postponed."""

PASSES: Final = 2

_WAITS: Final = (1.0, 0.6, 0.3, 0.1, 0.0)
"""Of the longest least plan, after which a postponed job is taken to start; chosen on seeds that are not reported."""


def exchange(
    jobs: ElasticJobs,
    *,
    gpus: int,
    intensity_g_per_kwh: float,
    budget_g: float,
    period_s: float,
    pue: float = 1.0,
    put_off: PutOff = "forced",
) -> CountsAndFrequencies:
    """Choose every job's GPUs and frequency for one period, emissions within it at most `budget_g`.

    Never worse in `mean_completion_s` than `allocate` that charges by the period, where it starts. It ends where no
    exchange between two jobs shortens it. Under ``"forced"`` no more jobs are postponed than there; ``"chosen"`` is
    shorter in the mean, but what it puts off for shorter jobs it may put off again in the next round.

    Shorter is meant as if the plan were kept until the jobs end. Rounds come again, and on budgets that stay tight work
    per gram counts more than this round's times: there the source's charge by the job can be shorter over time. So this
    is the measure of a round, and an alternative where budgets are wide; `allocate` stays the default.

    Raises
    ------
    BadInput
        As `allocate`.
    """
    period = checked_period(
        gpus=gpus, intensity_g_per_kwh=intensity_g_per_kwh, budget_g=budget_g, period_s=period_s, pue=pue
    )
    order = canonical_order(jobs)
    jobs = jobs.rows(order)
    plan = allocate(
        jobs,
        gpus=gpus,
        intensity_g_per_kwh=intensity_g_per_kwh,
        budget_g=budget_g,
        period_s=period_s,
        pue=pue,
        charge="period",
    )
    if len(jobs) == 0:
        return plan
    most_put_off = int(plan.postponed.sum()) if put_off == "forced" else len(jobs)
    mean_s = mean_completion_s(jobs, plan, period_s=period_s)
    options = Options.of(jobs, period)
    for _ in range(PASSES):
        before_s = mean_s
        # Where nobody may be postponed, what postponing costs does not matter.
        for later_s in _guesses(jobs, plan, period_s)[: None if most_put_off else 1]:
            for tried in _searched(jobs, plan, options.postponing(later_s), gpus, period, most_put_off):
                tried_s = mean_completion_s(jobs, tried, period_s=period_s)
                if tried_s < mean_s:
                    plan, mean_s = tried, tried_s
        if mean_s == before_s:
            break
    return planned(plan.gpus, plan.step, order, [], why=WHY[put_off])


def _guesses(jobs: ElasticJobs, plan: CountsAndFrequencies, period_s: float) -> list[FloatArray]:
    """Return what postponing may cost (J,): several guesses, as it depends on the plan that is sought."""
    least_s = least_plan_s(jobs)
    running = plan.gpus > 0
    first_end_s = float(remaining_s(jobs, plan)[running].min()) if running.any() else 0.0
    postponed_s = completion_s(jobs, plan, period_s=period_s) - jobs.age_s
    as_planned = np.where(running, max(first_end_s, period_s) + least_s, postponed_s)
    return [*(period_s + part * float(least_s.max()) + least_s for part in _WAITS), as_planned]


def _searched(
    jobs: ElasticJobs, plan: CountsAndFrequencies, options: Options, gpus: int, period: Period, most_put_off: int
) -> list[CountsAndFrequencies]:
    """Return what exchanges make of the plan and of the relaxed one."""
    limits = Limits(gpus=gpus, period_g=period.budget_g * (1.0 - BUDGET_MARGIN), postponed=most_put_off)
    relaxed = relax(options, gpus=gpus, budget_g=limits.period_g)
    found = candidates(options, relaxed)
    starts = [(plan.gpus, plan.step)]
    if int((relaxed.gpus == 0).sum()) <= most_put_off:
        starts.append((relaxed.gpus, relaxed.step))
    rows = np.arange(len(jobs))
    return [planned(*exchanged(options, found, *start, limits), rows, []) for start in starts]

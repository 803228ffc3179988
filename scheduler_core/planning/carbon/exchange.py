"""Improve the carbon patent's plan, and plans of the relaxed problem, by changing pairs of jobs (ours).

The patent ranks steps by benefit per gram and never takes one back. Here GPUs have a price too, and counts and
frequencies are chosen together. An option is one frequency and GPU count of one job. The carbon study and the
benchmarks call `exchange` instead of `allocator.allocate`.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from scheduler_core.planning.carbon.allocator import DID_NOT_FIT, allocate, canonical_order, checked_period, planned
from scheduler_core.planning.carbon.climb import BUDGET_MARGIN, Period
from scheduler_core.planning.carbon.elastic import (
    CountsAndFrequencies,
    ElasticJobs,
    completion_s,
    least_plan_s,
    mean_completion_s,
    remaining_s,
)
from scheduler_core.planning.carbon.relaxation import Options, Relaxed, relax
from scheduler_core.types import FloatArray, IntArray

__all__ = ["exchange"]

MOST_OPTIONS: Final = 256
"""Maximum number of options searched over all jobs: those with the least loss at the prices of `relaxation`."""

MOST_EXCHANGES: Final = 64

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a plan: maximum number of GPUs, of grams emitted within the period, and of postponed jobs."""

    gpus: int
    period_g: float
    postponed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Columns (L,) of L options: job, GPU count, frequency index, remaining run time, and grams within the period."""

    job: IntArray
    gpus: IntArray
    step: IntArray
    left_s: FloatArray
    period_g: FloatArray


def candidates(options: Options, relaxed: Relaxed) -> Candidates:
    """Return the options with the least loss.

    The loss of an option is its cost at the prices of `relax` minus the cost of the same job's best option. An option
    whose loss exceeds the difference between a plan's time and the lower bound cannot be part of a better plan.
    """
    counts = np.arange(options.left_s.shape[2])
    loss_s = options.left_s + relaxed.s_per_g * options.period_g + relaxed.s_per_gpu * counts
    loss_s -= loss_s.min(axis=(0, 2), keepdims=True)
    # Keep one option with 0 GPUs per job: a postponed job has no frequency.
    loss_s[1:, :, 0] = np.inf
    flat = loss_s.ravel()
    kept = np.argpartition(flat, MOST_OPTIONS)[:MOST_OPTIONS] if flat.size > MOST_OPTIONS else np.arange(flat.size)
    kept = np.sort(kept[np.isfinite(flat[kept])])
    step, job, gpus = np.unravel_index(kept, loss_s.shape)
    return Candidates(
        job=job,
        gpus=gpus,
        step=step,
        left_s=options.left_s.ravel()[kept],
        period_g=options.period_g.ravel()[kept],
    )


def exchanged(
    options: Options, found: Candidates, gpus: IntArray, step: IntArray, limits: Limits
) -> tuple[IntArray, IntArray]:
    """Apply the best exchange (new options for one or two jobs) until none saves time; return counts and steps."""
    gpus, step = gpus.copy(), step.copy()
    for _ in range(MOST_EXCHANGES):
        best = _best(options, found, gpus, step, limits)
        if not best:
            break
        for option in best:
            gpus[found.job[option]], step[found.job[option]] = found.gpus[option], found.step[option]
    return gpus, step


def _best(options: Options, found: Candidates, gpus: IntArray, step: IntArray, limits: Limits) -> list[int]:
    """Return the one or two options that together save most time within the limits; empty if none saves time."""
    rows = np.arange(len(gpus))
    left_s, period_g = options.left_s[step, rows, gpus], options.period_g[step, rows, gpus]
    # The appended last option changes no job, so that a single option can be chosen too.
    longer_s = np.append(found.left_s - left_s[found.job], 0.0)
    more_gpus = np.append(found.gpus - gpus[found.job], 0)
    more_g = np.append(found.period_g - period_g[found.job], 0.0)
    more_off = np.append((found.gpus == 0).astype(np.int64) - (gpus[found.job] == 0), 0)
    job = np.append(found.job, -1)
    takes = np.flatnonzero(longer_s < 0.0)
    if not takes.size:
        return []
    fits = more_gpus[takes, None] + more_gpus <= limits.gpus - int(gpus.sum())
    fits &= more_g[takes, None] + more_g <= limits.period_g - float(period_g.sum())
    fits &= more_off[takes, None] + more_off <= limits.postponed - int((gpus == 0).sum())
    fits &= job[takes, None] != job
    saved_s = np.where(fits, -(longer_s[takes, None] + longer_s), -np.inf)
    best = int(saved_s.argmax())
    if not saved_s.flat[best] > _ROUNDING * float(left_s.sum()):
        return []
    take, give = divmod(best, len(longer_s))
    return [option for option in (int(takes[take]), give) if option < len(found.job)]


PutOff = Literal["forced", "chosen"]
"""Which jobs may be postponed: `forced`, no more than `allocate` postpones; `chosen`, also others if that is better."""

WHY: Final[dict[PutOff, str]] = {
    "forced": DID_NOT_FIT,
    "chosen": f"others make more of the GPUs and grams, or {DID_NOT_FIT}",
}
"""Reason that the note on postponed jobs gives."""

PASSES: Final = 2

_WAITS: Final = (1.0, 0.6, 0.3, 0.1, 0.0)
"""Assumed start of postponed jobs after the period, as fractions of the longest `least_plan_s`; tuned on seeds that no
result uses.
"""


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
    """Choose every job's GPUs and frequency for one period, with at most `budget_g` emitted within the period.

    The search starts from the plan of `allocate` with ``charge="period"`` and stops when no exchange lowers
    `mean_completion_s`, so its plan is never worse. With ``put_off="forced"`` no more jobs are postponed than in the
    first plan. ``"chosen"`` gives a lower mean, but a job may be postponed round after round in favour of shorter jobs.

    `mean_completion_s` assumes that the plan is kept until the jobs end. Over many rounds with small budgets, work done
    per gram matters more, and `allocate` with ``charge="job"`` can give shorter times. Use this function for a single
    round or large budgets, and `allocate` otherwise.

    Raises
    ------
    BadInput
        In the same cases as `allocate`.
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
        # If no job may be postponed, the guessed times are never used, so one guess is enough.
        for later_s in _guesses(jobs, plan, period_s)[: None if most_put_off else 1]:
            for tried in _searched(jobs, plan, options.postponing(later_s), gpus, period, most_put_off):
                tried_s = mean_completion_s(jobs, tried, period_s=period_s)
                if tried_s < mean_s:
                    plan, mean_s = tried, tried_s
        if mean_s == before_s:
            break
    return planned(plan.gpus, plan.step, order, [], why=WHY[put_off])


def _guesses(jobs: ElasticJobs, plan: CountsAndFrequencies, period_s: float) -> list[FloatArray]:
    """Return several guesses of each job's completion if postponed (J,); the true value depends on the final plan."""
    least_s = least_plan_s(jobs)
    running = plan.gpus > 0
    first_end_s = float(remaining_s(jobs, plan)[running].min()) if running.any() else 0.0
    postponed_s = completion_s(jobs, plan, period_s=period_s) - jobs.age_s
    as_planned = np.where(running, max(first_end_s, period_s) + least_s, postponed_s)
    return [*(period_s + part * float(least_s.max()) + least_s for part in _WAITS), as_planned]


def _searched(
    jobs: ElasticJobs, plan: CountsAndFrequencies, options: Options, gpus: int, period: Period, most_put_off: int
) -> list[CountsAndFrequencies]:
    """Return the plan, and that of `relax` if it postpones few enough jobs, each improved by exchanges."""
    limits = Limits(gpus=gpus, period_g=period.budget_g * (1.0 - BUDGET_MARGIN), postponed=most_put_off)
    relaxed = relax(options, gpus=gpus, budget_g=limits.period_g)
    found = candidates(options, relaxed)
    starts = [(plan.gpus, plan.step)]
    if int((relaxed.gpus == 0).sum()) <= most_put_off:
        starts.append((relaxed.gpus, relaxed.step))
    rows = np.arange(len(jobs))
    return [planned(*exchanged(options, found, *start, limits), rows, []) for start in starts]

"""Best plan of a small round, found by trying all counts, frequencies and postponements of a few jobs.

Called by `gap` and tests, which compare allocators with the best plan.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, least_plan_s
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

MOST_PLANS = 40_000_000
"""Maximum number of plans to try; 4 jobs on up to 8 GPUs at 5 frequencies have less than 3 million."""

_BUDGET_ROUNDING = 1e-11


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Columns of all options of one job: first postponing it, then every allowed count at every frequency."""

    gpus: IntArray
    step: IntArray
    left_s: FloatArray
    period_g: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partial:
    """All plans for the jobs considered so far that keep within the GPUs and the budget.

    Each array has one entry per plan: its GPUs and grams used, the summed times of running jobs, the number of
    postponed jobs, and the index of each job's option (`picks`, shape (P, jobs so far)).
    """

    gpus: IntArray
    period_g: FloatArray
    running_s: FloatArray
    postponed: IntArray
    picks: IntArray


def exhaustive(
    jobs: ElasticJobs,
    *,
    gpus: int,
    intensity_g_per_kwh: float,
    budget_g: float,
    period_s: float,
    pue: float = 1.0,
    most_postponed: int | None = None,
) -> CountsAndFrequencies:
    """Return the plan with the least mean completion time (`elastic.completion_s`) within the GPUs and the budget.

    Plans that postpone more than `most_postponed` jobs are left out.

    Raises
    ------
    BadInput
        If there are too many plans to try, or all plans postpone more than `most_postponed` jobs.
    """
    g_per_j = intensity_g_per_kwh * pue / JOULES_PER_KWH
    options = [_options(jobs, row, g_per_j, period_s) for row in range(len(jobs))]
    plans = np.prod([float(len(option.gpus)) for option in options])
    if plans > MOST_PLANS:
        raise BadInput(f"exhaustive optimum: found {plans:.0f} plans, expected at most {MOST_PLANS}; give fewer jobs")
    limit_g = budget_g * (1.0 + _BUDGET_ROUNDING)
    tried = _nothing()
    for option in options:
        tried = _extended(tried, option, gpus, limit_g)
    total_s = tried.running_s.copy()
    some = np.flatnonzero(tried.postponed)
    total_s[some] += _later_s(jobs, options, tried.picks[some], gpus, period_s)
    if most_postponed is not None:
        total_s = np.where(tried.postponed <= most_postponed, total_s, np.inf)
    if not np.isfinite(total_s).any():
        raise BadInput(f"exhaustive optimum: found no plan that postpones at most {most_postponed} jobs; allow more")
    picks = tried.picks[int(np.argmin(total_s))]
    count = np.array([option.gpus[pick] for option, pick in zip(options, picks, strict=True)], dtype=np.int64)
    step = np.array([option.step[pick] for option, pick in zip(options, picks, strict=True)], dtype=np.int64)
    return CountsAndFrequencies(gpus=count, step=step, postponed=count == 0)


def _options(jobs: ElasticJobs, row: int, g_per_j: float, period_s: float) -> _Options:
    counts = np.flatnonzero(jobs.allowed[row])
    gpus, step = (grid.ravel() for grid in np.meshgrid(counts, np.arange(len(jobs.mhz)), indexing="ij"))
    left_s = jobs.steps_left[row] / (jobs.steps_per_s[row, gpus] * jobs.perf[row, step])
    grams = g_per_j * gpus * jobs.watts[row, step] * np.minimum(left_s, period_s)
    return _Options(
        gpus=np.append(0, gpus),
        step=np.append(jobs.optimal_step[row], step),
        left_s=np.append(np.inf, left_s),
        period_g=np.append(0.0, grams),
    )


def _nothing() -> _Partial:
    zero, none = np.zeros(1), np.zeros(1, dtype=np.int64)
    return _Partial(gpus=none, period_g=zero, running_s=zero, postponed=none, picks=np.zeros((1, 0), dtype=np.int64))


def _extended(tried: _Partial, option: _Options, gpus: int, limit_g: float) -> _Partial:
    """Extend every plan by every option of one more job; return the plans that still fit."""
    held = tried.gpus[:, None] + option.gpus
    grams = tried.period_g[:, None] + option.period_g
    before, pick = np.nonzero((held <= gpus) & (grams <= limit_g))
    waits = option.gpus[pick] == 0
    return _Partial(
        gpus=held[before, pick],
        period_g=grams[before, pick],
        running_s=tried.running_s[before] + np.where(waits, 0.0, option.left_s[pick]),
        postponed=tried.postponed[before] + waits,
        picks=np.hstack([tried.picks[before], pick[:, None]]),
    )


def _later_s(jobs: ElasticJobs, options: list[_Options], picks: IntArray, gpus: int, period_s: float) -> FloatArray:
    """Return the summed completion times of each plan's postponed jobs, computed as in `elastic.completion_s`."""
    least_s, fewest = least_plan_s(jobs), jobs.allowed.argmax(axis=1)
    wide = max(gpus, int(fewest.max()))
    free_s = np.full((len(picks), wide * 2), np.inf)
    filled = np.zeros(len(picks), dtype=np.int64)
    for row, option in enumerate(options):
        for more in range(gpus):
            holds = np.flatnonzero(option.gpus[picks[:, row]] > more)
            free_s[holds, filled[holds]] = np.maximum(option.left_s[picks[holds, row]], period_s)
            filled[holds] += 1
    total_s = np.zeros(len(picks))
    for row in np.argsort(least_s, kind="stable"):
        waits = np.flatnonzero(options[row].gpus[picks[:, row]] == 0)
        line_s = np.sort(free_s[waits], axis=1)
        taken = int(fewest[row])
        at = np.maximum(np.minimum(taken, np.isfinite(line_s).sum(axis=1)) - 1, 0)
        start_s = line_s[np.arange(len(waits)), at]
        ends_s = np.where(np.isinf(start_s), period_s, start_s) + least_s[row]
        line_s[:, :taken] = ends_s[:, None]
        free_s[waits] = line_s
        total_s[waits] += ends_s
    return total_s

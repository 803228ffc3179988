"""The allocator with a price on energy: steps that save too little time for what they draw are not taken (ours).

A budget a period says how much may be drawn then, not whether it is worth it; a price says the same in every period.
Called by the experiment on carbon budgets.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from scheduler_core.planning.carbon.allocator import Stage, allocate
from scheduler_core.planning.carbon.elastic import ELASTIC, CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.emissions import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

COUNTS: Final[tuple[Stage, ...]] = ("counts",)


def priced(
    jobs: ElasticJobs,
    *,
    gpus: int,
    intensity_g_per_kwh: float,
    budget_g: float,
    period_s: float,
    pue: float = 1.0,
    price_s_per_kwh: float = 0.0,
) -> CountsAndFrequencies:
    """Choose counts, then frequencies, as `allocate` does, of steps that save at least the price in run time a kWh.

    A step is one more GPU at the energy-optimal frequency, or the next frequency with the GPUs held. First GPUs and
    steps that cost no energy are always worth it. Grams do not enter the price: the budget has them.
    """
    within = partial(
        allocate,
        gpus=gpus,
        intensity_g_per_kwh=intensity_g_per_kwh,
        budget_g=budget_g,
        period_s=period_s,
        pue=pue,
    )
    counted = within(_worth_counts(jobs, price_s_per_kwh), stages=COUNTS)
    running = np.flatnonzero(counted.gpus)
    raised = within(_worth_steps(_taken(jobs, running), counted.gpus[running], price_s_per_kwh))
    step = counted.step.copy()
    step[running] = raised.step
    return replace(counted, step=step)


def _worth_counts(jobs: ElasticJobs, price_s_per_kwh: float) -> ElasticJobs:
    """Leave out each elastic job's counts from the first on that is not worth it after the one before."""
    rows = np.arange(len(jobs))
    step = jobs.optimal_step
    speeds = np.where(jobs.allowed, jobs.steps_per_s, np.nan)
    left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / speeds
    kwh = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None] * left_s / JOULES_PER_KWH
    # To or from a count that is not allowed nothing can be compared, and nothing is left out for it.
    kept = _worth(left_s[:, 1:], kwh[:, 1:], price_s_per_kwh)
    kept |= (jobs.rigid_gpus != ELASTIC)[:, None]
    speeds = np.where(np.column_stack([np.ones(len(jobs), dtype=np.bool_), kept]), jobs.steps_per_s, np.nan)
    return replace(jobs, steps_per_s=speeds)


def _worth_steps(jobs: ElasticJobs, gpus: IntArray, price_s_per_kwh: float) -> ElasticJobs:
    """Hold jobs at the GPUs they have, and let frequencies that are not worth it make them no faster."""
    rows = np.arange(len(jobs))
    left_s = (jobs.steps_left / jobs.steps_per_s[rows, gpus])[:, None] / jobs.perf
    kwh = gpus[:, None] * jobs.watts * left_s / JOULES_PER_KWH
    start = jobs.optimal_step[:, None]
    worth = _worth(left_s, kwh, price_s_per_kwh, start=start)
    last = np.where(worth & (np.arange(len(jobs.mhz)) >= start), np.arange(len(jobs.mhz)), start).max(axis=1)
    perf = jobs.perf[rows[:, None], np.minimum(np.arange(len(jobs.mhz)), last[:, None])]
    return replace(jobs, rigid_gpus=gpus, perf=perf)


def _worth(left_s: FloatArray, kwh: FloatArray, price_s_per_kwh: float, *, start: IntArray | int = 0) -> BoolArray:
    """Return which columns (J, K) are reached from `start` by steps that are all worth it."""
    saved_s, more_kwh = -np.diff(left_s, axis=1), np.diff(kwh, axis=1)
    worth = ~(saved_s < price_s_per_kwh * np.maximum(more_kwh, 0.0))
    columns = np.arange(left_s.shape[1])
    given = np.column_stack([np.ones(len(left_s), dtype=np.bool_), worth]) | (columns <= start)
    return np.asarray(np.logical_and.accumulate(given, axis=1), dtype=np.bool_)


def _taken(jobs: ElasticJobs, rows: IntArray) -> ElasticJobs:
    names = ("steps_left", "steps_per_s", "perf", "watts", "age_s", "rigid_gpus")
    return replace(jobs, **{name: getattr(jobs, name)[rows] for name in names})

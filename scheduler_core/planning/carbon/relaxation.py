"""Every job's options with GPUs and grams at a price: the relaxed round, its bound and its plan.

With a price per GPU and per gram every job chooses for itself; the prices at which the choices fit are found by
halving. Called by `exchange`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.planning.carbon.ladders import Period
from scheduler_core.types import FloatArray, IntArray

HALVINGS: Final = 12
DECADES: Final = 9.0
"""Prices are sought over so many powers of ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What each job can be given: (F, J, N+1), frequencies first, as the least over them is most often asked for.

    `left_s` is the run time left, infinite where a count is not allowed, `period_g` the emissions within the period.
    Without GPUs `left_s` is what postponing is taken to cost, infinite until it is told.
    """

    left_s: FloatArray
    period_g: FloatArray

    @classmethod
    def of(cls, jobs: ElasticJobs, period: Period) -> "Options":
        """Return the options of jobs within a period."""
        allowed = jobs.allowed
        speeds = np.where(allowed, jobs.steps_per_s, 1.0)
        left_s = (jobs.steps_left[:, None] / speeds) / jobs.perf.T[:, :, None]
        watts = np.arange(jobs.most_gpus + 1) * jobs.watts.T[:, :, None]
        period_g = period.grams(watts, left_s)
        left_s[:, ~allowed] = np.inf
        return cls(left_s=left_s, period_g=period_g)

    def postponing(self, later_s: FloatArray) -> "Options":
        """Return the same options for jobs that would end `later_s` (J,) from now if postponed."""
        left_s = self.left_s.copy()
        left_s[:, :, 0] = later_s
        return replace(self, left_s=left_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """The choices at the prices found (J,), within both limits, and what any plan's times sum to at least."""

    gpus: IntArray
    step: IntArray
    s_per_g: float
    s_per_gpu: float
    least_sum_s: float


def relax(options: Options, *, gpus: int, budget_g: float) -> Relaxed:
    """Return the cheapest choices that fit at the least prices found for grams and GPUs.

    Σ min (T + λ·grams + μ·GPUs) - λ·budget - μ·all GPUs is a bound from below for any prices; the best seen is given.
    """
    counts = np.arange(options.left_s.shape[2], dtype=np.float64)
    rows = np.arange(options.left_s.shape[1])
    worst_s = float(options.left_s[np.isfinite(options.left_s)].max())
    least_sum_s = -np.inf
    found: dict[float, tuple[FloatArray, IntArray, float]] = {}

    def fits(s_per_g: float) -> bool:
        nonlocal least_sum_s
        priced = options.left_s + s_per_g * options.period_g
        by_count = priced.min(axis=0)
        s_per_gpu = _least_price(
            lambda price: float(counts[(by_count + price * counts).argmin(axis=1)].sum()) <= gpus, worst_s
        )
        total = by_count + s_per_gpu * counts
        count = total.argmin(axis=1)
        step = priced[:, rows, count].argmin(axis=0)
        spent_g = float(options.period_g[step, rows, count].sum())
        bound_s = float(total[rows, count].sum()) - (s_per_g * budget_g if s_per_g > 0.0 else 0.0) - s_per_gpu * gpus
        least_sum_s = max(least_sum_s, bound_s)
        found[s_per_g] = (count, step, s_per_gpu)
        return spent_g <= budget_g

    positive = options.period_g[options.period_g > 0.0]
    most = worst_s / float(positive.min()) if positive.size else 0.0
    s_per_g = _least_price(fits, most)
    count, step, s_per_gpu = found[s_per_g]
    return Relaxed(
        gpus=count.astype(np.int64),
        step=step.astype(np.int64),
        s_per_g=s_per_g,
        s_per_gpu=s_per_gpu,
        least_sum_s=least_sum_s,
    )


def _least_price(fits: Callable[[float], bool], most: float) -> float:
    """Return about the least price that fits: 0, or one within `DECADES` below `most`."""
    if fits(0.0) or most == 0.0:
        return 0.0
    high = 2.0 * most
    fits(high)
    low = high * 10.0**-DECADES
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        if fits(middle):
            high = middle
        else:
            low = middle
    return high

"""Lagrangian relaxation of a round: prices for GPUs and grams replace their limits; gives a lower bound and a plan.

At fixed prices, each job's cheapest option does not depend on other jobs. Bisection finds the prices at which the
cheapest options keep both limits. Called by `exchange`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.planning.carbon.climb import Period
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.types import FloatArray, IntArray

HALVINGS: Final = 12
DECADES: Final = 9.0
"""Ratio of the highest to the lowest price searched, in powers of ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Run time and emissions of every option; shape (frequencies F, jobs J, GPU counts N+1).

    `left_s` is the remaining run time, infinite where a count is not allowed; `period_g` the grams emitted within the
    period. For 0 GPUs `left_s` is the time until a postponed job would end, infinite until `postponing` sets it.
    Frequency is the first axis because minima are most often taken along it.
    """

    left_s: FloatArray
    period_g: FloatArray

    @classmethod
    def of(cls, jobs: ElasticJobs, period: Period) -> "Options":
        """Return all options of the jobs, with emissions in the given period."""
        allowed = jobs.allowed
        speeds = np.where(allowed, jobs.steps_per_s, 1.0)
        left_s = (jobs.steps_left[:, None] / speeds) / jobs.perf.T[:, :, None]
        watts = np.arange(jobs.most_gpus + 1) * jobs.watts.T[:, :, None]
        period_g = period.grams(watts, left_s)
        left_s[:, ~allowed] = np.inf
        return cls(left_s=left_s, period_g=period_g)

    def postponing(self, later_s: FloatArray) -> "Options":
        """Return a copy of the options in which a postponed job ends `later_s` (J,) from now."""
        left_s = self.left_s.copy()
        left_s[:, :, 0] = later_s
        return replace(self, left_s=left_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """Cheapest option of each job (J,) within both limits, the prices, and a lower bound `least_sum_s` on all plans."""

    gpus: IntArray
    step: IntArray
    s_per_g: float
    s_per_gpu: float
    least_sum_s: float


def relax(options: Options, *, gpus: int, budget_g: float) -> Relaxed:
    """Return the cheapest options at the lowest prices found at which they keep both limits.

    For any prices λ of a gram and μ of a GPU, Σ min (T + λ·grams + μ·GPUs) - λ·budget - μ·all GPUs is a lower bound on
    the sum of remaining times T. `least_sum_s` is the highest such bound found.
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
    """Return about the lowest price that fits: 0, or a price at most `DECADES` powers of ten below `most`."""
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

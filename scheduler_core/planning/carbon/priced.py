"""Allocation with a price on energy (ours): constant over time (`priced`), or different now and later (`foreseen`).

A budget limits the emissions of a period. A price decides for each step whether the time it saves is worth its energy.
The caller gives prices and forecasts. Called by the carbon study.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.allocator import Stage, allocate
from scheduler_core.planning.carbon.elastic import ELASTIC, CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["foreseen", "priced"]

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
    """Choose counts, then frequencies, as `allocate` does, but take only steps that are worth their energy.

    A step is one more GPU at the energy-optimal frequency, or the next higher frequency with the same GPUs. It is worth
    its energy if it saves at least `price_s_per_kwh` seconds of run time per kWh that it adds. First GPUs and steps
    that add no energy are always worth it. Emissions are limited by the budget, not by the price.
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
    raised = within(_worth_steps(jobs.rows(running), counted.gpus[running], price_s_per_kwh))
    step = counted.step.copy()
    step[running] = raised.step
    return replace(counted, step=step)


def _worth_counts(jobs: ElasticJobs, price_s_per_kwh: float) -> ElasticJobs:
    """Return the jobs, allowing only GPU counts that are worth the price; rigid jobs are unchanged."""
    rows = np.arange(len(jobs))
    step = jobs.optimal_step
    speeds = np.where(jobs.allowed, jobs.steps_per_s, np.nan)
    left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / speeds
    kwh = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None] * left_s / JOULES_PER_KWH
    # A step from or to a count that is not allowed has the time NaN, so that it removes no count.
    kept = _worth(left_s[:, 1:], kwh[:, 1:], price_s_per_kwh)
    kept |= (jobs.rigid_gpus != ELASTIC)[:, None]
    speeds = np.where(np.column_stack([np.ones(len(jobs), dtype=np.bool_), kept]), jobs.steps_per_s, np.nan)
    return replace(jobs, steps_per_s=speeds)


def _worth_steps(jobs: ElasticJobs, gpus: IntArray, price_s_per_kwh: float) -> ElasticJobs:
    """Return the jobs with fixed GPU counts, and without speed gain at frequencies that are not worth the price."""
    rows = np.arange(len(jobs))
    left_s = (jobs.steps_left / jobs.steps_per_s[rows, gpus])[:, None] / jobs.perf
    kwh = gpus[:, None] * jobs.watts * left_s / JOULES_PER_KWH
    start = jobs.optimal_step[:, None]
    worth = _worth(left_s, kwh, price_s_per_kwh, start=start)
    last = np.where(worth & (np.arange(len(jobs.mhz)) >= start), np.arange(len(jobs.mhz)), start).max(axis=1)
    perf = jobs.perf[rows[:, None], np.minimum(np.arange(len(jobs.mhz)), last[:, None])]
    return replace(jobs, rigid_gpus=gpus, perf=perf)


def _worth(left_s: FloatArray, kwh: FloatArray, price_s_per_kwh: float, *, start: IntArray | int = 0) -> BoolArray:
    """Mark the columns (J, K) that steps from column `start` reach, if each step on the way is worth the price."""
    saved_s, more_kwh = -np.diff(left_s, axis=1), np.diff(kwh, axis=1)
    worth = ~(saved_s < price_s_per_kwh * np.maximum(more_kwh, 0.0))
    columns = np.arange(left_s.shape[1])
    given = np.column_stack([np.ones(len(left_s), dtype=np.bool_), worth]) | (columns <= start)
    return np.asarray(np.logical_and.accumulate(given, axis=1), dtype=np.bool_)


HALVINGS: Final = 14
"""Number of bisection steps in the search for the GPU price."""

MOST_PRICE: Final = 1e9


def foreseen(
    jobs: ElasticJobs, *, gpus: int, now_s_per_kwh: float, later_s_per_kwh: FloatArray
) -> CountsAndFrequencies:
    """Choose counts and frequencies for now, given the price of energy now and its expected price later.

    `now_s_per_kwh` is the price now in seconds of run time per kWh; `later_s_per_kwh` (J,) is the price expected during
    the rest of each job. The value of a unit of work is its lowest cost later: the minimum of (1 + μ·n + p·P) / speed
    over GPU counts n and frequencies, where p is the later price, P the power and μ the price of a GPU. Each job gets
    the count and frequency with the highest value of work done minus cost now, or waits if no difference is above 0. μ
    is the lowest price at which there are enough GPUs. If both prices are equal, every job gets the count and frequency
    with the lowest sum of time and cost.

    Raises
    ------
    BadInput
        If a price is negative or not a number, or the number of later prices is not the number of jobs.
    """
    prices = np.append(later_s_per_kwh, now_s_per_kwh)
    if len(prices) != len(jobs) + 1 or not (np.isfinite(prices) & (prices >= 0.0)).all():
        raise BadInput(f"prices of energy: found {len(prices) - 1} later ones for {len(jobs)} jobs, expected one each")
    if not len(jobs):
        nothing = np.zeros(0, dtype=np.int64)
        return CountsAndFrequencies(gpus=nothing, step=nothing, postponed=nothing > 0)
    table = _Table.of(jobs, now_s_per_kwh, later_s_per_kwh)
    count, step = table.chosen(0.0)
    if count.sum() > gpus:
        count, step = _within(table, gpus)
    return CountsAndFrequencies(gpus=count, step=step, postponed=count == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Speed relative to the job's highest, and cost per second, of every job at every count and frequency (J, N·F)."""

    speed: FloatArray
    now_cost: FloatArray
    later_cost: FloatArray
    gpus: IntArray
    steps: int
    fastest_s: FloatArray

    @classmethod
    def of(cls, jobs: ElasticJobs, now_s_per_kwh: float, later_s_per_kwh: FloatArray) -> "_Table":
        """Return the table of all counts and frequencies; those that are not allowed have speed 0."""
        many, steps = len(jobs), len(jobs.mhz)
        counts = np.arange(1, jobs.most_gpus + 1)
        rate = np.where(jobs.allowed, jobs.steps_per_s, 0.0)[:, 1:, None] * jobs.perf[:, None, :]
        best = rate.reshape(many, -1).max(axis=1)
        kwh_per_s = (counts[:, None] * jobs.watts[:, None, :] / JOULES_PER_KWH).reshape(many, -1)
        return cls(
            speed=rate.reshape(many, -1) / best[:, None],
            now_cost=now_s_per_kwh * kwh_per_s,
            later_cost=later_s_per_kwh[:, None] * kwh_per_s,
            gpus=np.repeat(counts, steps),
            steps=steps,
            fastest_s=jobs.steps_left / best,
        )

    def chosen(self, gpu_price: float) -> tuple[IntArray, IntArray]:
        """Return each job's count and frequency (J,) with the highest value minus cost; 0 GPUs if none is above 0."""
        held = gpu_price * self.gpus
        with np.errstate(divide="ignore"):
            worth = ((1.0 + held + self.later_cost) / self.speed).min(axis=1)
        gain = np.where(self.speed > 0.0, worth[:, None] * self.speed - held - self.now_cost, -np.inf)
        best = gain.argmax(axis=1)
        paid = np.take_along_axis(gain, best[:, None], axis=1)[:, 0] > 0.0
        return np.where(paid, self.gpus[best], 0).astype(np.int64), np.asarray(best % self.steps, dtype=np.int64)


def _within(table: _Table, gpus: int) -> tuple[IntArray, IntArray]:
    """Return counts and frequencies at the lowest GPU price at which they need at most `gpus` GPUs.

    GPUs left free go to the shortest jobs whose choice at a slightly lower price needs no more than the free GPUs.
    """
    low, high = 0.0, 1.0
    while table.chosen(high)[0].sum() > gpus and high < MOST_PRICE:
        low, high = high, 4.0 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if table.chosen(middle)[0].sum() > gpus else (low, middle)
    count, step = table.chosen(high)
    wanted, at = table.chosen(low)
    # If too many GPUs are chosen even at the highest price, start with none and serve the shortest jobs first.
    if count.sum() > gpus:
        count = np.zeros_like(count)
    free = gpus - int(count.sum())
    for row in np.argsort(table.fastest_s, kind="stable"):
        more = int(wanted[row] - count[row])
        if 0 < more <= free:
            count[row], step[row] = wanted[row], at[row]
            free -= more
    return count, step

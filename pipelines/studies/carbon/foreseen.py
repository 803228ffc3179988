"""Allocation with one price of energy now and another later (ours): jobs wait or slow down where later is cheaper."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.planning.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

HALVINGS: Final = 14
"""Number of bisection steps in the search for the GPU price."""

MOST_PRICE: Final = 1e9


def foreseen(jobs: ElasticJobs, gpus: int, now_s_per_kwh: float, later_s_per_kwh: FloatArray) -> CountsAndFrequencies:
    """Choose counts and frequencies for now, given the price of energy now and its expected price later.

    `now_s_per_kwh` is the price now in seconds of run time per kWh; `later_s_per_kwh` (J,) is the price expected during
    the rest of each job. The value of a unit of work is its lowest cost later: the minimum of (1 + μ·n + p·P) / speed
    over GPU counts n and frequencies, where p is the later price, P the power and μ the price of a GPU. Each job gets
    the count and frequency with the highest value of work done minus cost now, or waits if no difference is above 0. μ
    is the lowest price at which there are enough GPUs.
    """
    table = _Table.of(jobs, now_s_per_kwh, later_s_per_kwh)
    count, step = table.chosen(0.0)
    if count.sum() > gpus:
        count, step = _within(table, gpus)
    return CountsAndFrequencies(gpus=count, step=step)


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
        """Return the table; counts that are not allowed have speed 0."""
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

"""Counts and frequencies where energy costs one thing now and another later: long jobs work more in clean hours (ours).

Prices come from outside; what is expected of a grid is `energy.forecast`'s. Called by the carbon experiment.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.emissions import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

HALVINGS: Final = 14
"""How often the range of a GPU's price is halved; what GPUs this leaves go to the shortest jobs that want them."""

MOST_PRICE: Final = 1e9


def foreseen(
    jobs: ElasticJobs, *, gpus: int, now_s_per_kwh: float, later_s_per_kwh: FloatArray
) -> CountsAndFrequencies:
    """Choose counts and frequencies for now, where energy is worth `now_s_per_kwh` seconds of run time a kWh.

    `later_s_per_kwh` (J,) is what it is expected to be worth while a job lasts. A step of a job is then worth the least
    that it can be done for later, (1 + μ·n + p·P) / speed over its counts n and frequencies, where μ is the price of a
    GPU; now it gets what is worth most above its cost, which may be nothing: then it waits. μ is 0, or the least at
    which the GPUs suffice. Equal prices give every job the count and frequency of its least time plus cost.

    Raises
    ------
    BadInput
        If a price is negative or no number, or there is not one for each job.
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
    """Every count and frequency (J, N·F): its speed as a part of the job's best, and what a second of it costs."""

    speed: FloatArray
    now_cost: FloatArray
    later_cost: FloatArray
    gpus: IntArray
    steps: int
    fastest_s: FloatArray

    @classmethod
    def of(cls, jobs: ElasticJobs, now_s_per_kwh: float, later_s_per_kwh: FloatArray) -> "_Table":
        """Lay out the choices; those that are not allowed have no speed."""
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
        """Return what is worth most above its cost, count and frequency (J,); no GPU where nothing is worth it."""
        held = gpu_price * self.gpus
        with np.errstate(divide="ignore"):
            worth = ((1.0 + held + self.later_cost) / self.speed).min(axis=1)
        gain = np.where(self.speed > 0.0, worth[:, None] * self.speed - held - self.now_cost, -np.inf)
        best = gain.argmax(axis=1)
        paid = np.take_along_axis(gain, best[:, None], axis=1)[:, 0] > 0.0
        return np.where(paid, self.gpus[best], 0).astype(np.int64), np.asarray(best % self.steps, dtype=np.int64)


def _within(table: _Table, gpus: int) -> tuple[IntArray, IntArray]:
    """Return the choices at the least price of a GPU at which they fit, and fill up by those at the next lower."""
    low, high = 0.0, 1.0
    while table.chosen(high)[0].sum() > gpus and high < MOST_PRICE:
        low, high = high, 4.0 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if table.chosen(middle)[0].sum() > gpus else (low, middle)
    count, step = table.chosen(high)
    wanted, at = table.chosen(low)
    # Where even the highest price leaves too many, first come the shortest: each wants its fewest.
    if count.sum() > gpus:
        count = np.zeros_like(count)
    free = gpus - int(count.sum())
    for row in np.argsort(table.fastest_s, kind="stable"):
        more = int(wanted[row] - count[row])
        if 0 < more <= free:
            count[row], step[row] = wanted[row], at[row]
            free -= more
    return count, step

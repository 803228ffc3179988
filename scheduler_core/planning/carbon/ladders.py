"""What every job could be given next, rung by rung: GPU counts at a fixed frequency, or frequencies at a fixed count.

Emissions of all rungs and the rank of every step, computed at once; which step is taken is `climb`'s. Called by
`allocator`.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.planning.carbon.emissions import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

NO_STEP: Final = -1
FIRST_GPUS: Final = 0
SAVES_ENERGY: Final = 1
COSTS_ENERGY: Final = 2
"""Kinds of steps, in the order in which they are taken; `NO_STEP` is never taken."""

SAME_CHARGE: Final = 1e-12
"""Relative difference of two charges that is rounding."""

Charge = Literal["job", "period"]
"""What a step is charged for: what the job gives off until its end (the source), or within the period (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period a plan is for: `g_per_j` (intensity times PUE over joules per kWh), its length and its budget."""

    g_per_j: float
    period_s: float
    budget_g: float

    @classmethod
    def of(cls, *, intensity_g_per_kwh: float, pue: float, period_s: float, budget_g: float) -> "Period":
        """Return the period of an intensity and a budget."""
        return cls(g_per_j=intensity_g_per_kwh * pue / JOULES_PER_KWH, period_s=period_s, budget_g=budget_g)

    def grams(self, watts: FloatArray, left_s: FloatArray) -> FloatArray:
        """Return I·P·PUE·min(T, period) of columns of equal shape."""
        return np.asarray(self.g_per_j * watts * np.minimum(left_s, self.period_s), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladders:
    """Rungs (J, R) of J jobs in the order in which they can be taken, and the steps (J, R-1) between them.

    `choice` is the GPU count or the index of the frequency, `gpus` the GPUs held there, `period_g` what is given off
    within the period. A step is as `kind` says, and before others of its kind by its `rank`, the least first.
    """

    choice: IntArray
    gpus: IntArray
    period_g: FloatArray
    kind: IntArray
    rank: FloatArray


def count_ladders(jobs: ElasticJobs, step: IntArray, period: Period, charge: Charge = "job") -> Ladders:
    """Return the counts of every job at its frequency `step` (J,): no GPU, then each allowed count, ascending."""
    rows = np.arange(len(jobs))
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / jobs.steps_per_s
    watts = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None]
    held = jobs.allowed
    held[:, 0] = True
    # Allowed counts move to the front; what is not allowed follows, and no step leads there.
    choice = np.argsort(~held, axis=1, kind="stable").astype(np.int64)
    left_s, watts = np.take_along_axis(left_s, choice, axis=1), np.take_along_axis(watts, choice, axis=1)
    return _ladders(choice, choice, left_s, watts, np.take_along_axis(held, choice, axis=1), period, charge)


def frequency_ladders(
    jobs: ElasticJobs, gpus: IntArray, step: IntArray, period: Period, charge: Charge = "job"
) -> Ladders:
    """Return the frequencies of every job with its `gpus` (J,), from `step` (J,) up; a postponed job has no steps."""
    rows = np.arange(len(jobs))
    choice = np.minimum(step[:, None] + np.arange(len(jobs.mhz)), len(jobs.mhz) - 1)
    held = (step[:, None] + np.arange(len(jobs.mhz)) < len(jobs.mhz)) & (gpus > 0)[:, None]
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.steps_per_s[rows, gpus])[:, None] / jobs.perf[rows[:, None], choice]
    watts = gpus[:, None] * jobs.watts[rows[:, None], choice]
    return _ladders(choice, np.broadcast_to(gpus[:, None], choice.shape), left_s, watts, held, period, charge)


def _ladders(
    choice: IntArray,
    gpus: IntArray,
    left_s: FloatArray,
    watts: FloatArray,
    held: BoolArray,
    period: Period,
    charge: Charge,
) -> Ladders:
    # Without GPUs the time is infinite and nothing is drawn.
    energy_j = watts * np.where(np.isinf(left_s), 0.0, left_s)
    period_g = period.grams(watts, left_s)
    kind, rank = ranked(left_s, energy_j, energy_j if charge == "job" else period_g)
    kind[~held[:, 1:]] = NO_STEP
    return Ladders(choice=choice, gpus=gpus, period_g=period_g, kind=kind, rank=rank)


def ranked(left_s: FloatArray, energy_j: FloatArray, charged: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the kind and the rank of the steps (J, R-1) between rungs of times, energies and charges (J, R).

    The source's benefit ((T1 - T2)/T̄) / ((C2 - C1)/C) has T̄ and C in common for all steps at one moment, and
    intensity and PUE in C1, C2 and C; without them the order is the same, and what was ranked stays ranked while other
    jobs take theirs. First GPUs come before all (their T1 is infinite), by T·C; then steps that cost no energy
    (within `SAME_CHARGE`), by T1 - T2; then (T1 - T2)/(C2 - C1). A step that makes the job no faster is none.
    """
    next_s = left_s[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        faster_s, dearer = left_s[:, :-1] - next_s, np.diff(charged, axis=1)
        # Of a job that scales in proportion the two charges are one number, up to rounding.
        first, saves = np.isinf(left_s[:, :-1]), dearer <= SAME_CHARGE * charged[:, 1:]
        rank = np.where(first, next_s * energy_j[:, 1:], np.where(saves, -faster_s, -faster_s / dearer))
        kind = np.where(first, FIRST_GPUS, np.where(saves, SAVES_ENERGY, COSTS_ENERGY))
        return np.where(faster_s > 0.0, kind, NO_STEP).astype(np.int64), rank

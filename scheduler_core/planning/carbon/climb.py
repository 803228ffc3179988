"""Greedy climb: rank every job's next step (more GPUs, or a higher frequency), and take the best until a limit.

The limits are the number of GPUs and the carbon budget. `allocator` climbs twice: for counts and for frequencies.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

NO_STEP: Final = -1
FIRST_GPUS: Final = 0
SAVES_ENERGY: Final = 1
COSTS_ENERGY: Final = 2
"""Kinds of steps by priority: FIRST_GPUS, then SAVES_ENERGY, then COSTS_ENERGY; a NO_STEP is never taken."""

SAME_CHARGE: Final = 1e-12
"""Maximum relative difference of two charges that counts as rounding, so that they are taken as equal."""

Charge = Literal["job", "period"]
"""Which emissions divide a step's benefit: until the job's end (carbon patent), or what the budget limits (ours)."""

BudgetRule = Literal["period", "to-completion"]
"""Which emissions a budget limits: those of one period (ours), or those until the jobs end (carbon patent)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period to plan: grams emitted per joule (intensity times PUE), length, budget, and what the budget limits."""

    g_per_j: float
    period_s: float
    budget_g: float
    rule: BudgetRule = "period"

    @classmethod
    def of(
        cls,
        *,
        intensity_g_per_kwh: float,
        pue: float,
        period_s: float,
        budget_g: float = np.inf,
        rule: BudgetRule = "period",
    ) -> "Period":
        """Return the period for an intensity in g/kWh."""
        g_per_j = intensity_g_per_kwh * pue / JOULES_PER_KWH
        return cls(g_per_j=g_per_j, period_s=period_s, budget_g=budget_g, rule=rule)

    def grams(self, watts: FloatArray, left_s: FloatArray) -> FloatArray:
        """Return the grams that the budget limits, for power P and remaining time T.

        By the rule `period` these are I·P·PUE·min(T, period), by the rule `to-completion` I·P·PUE·T; 0 for a job that
        never ends because it has no GPU.
        """
        counted_s = np.where(np.isinf(left_s), 0.0, left_s)
        if self.rule == "period":
            counted_s = np.minimum(counted_s, self.period_s)
        return np.asarray(self.g_per_j * watts * counted_s, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladders:
    """Ladder of each of J jobs: R settings (rungs) in the order in which a job climbs, and the R-1 steps between them.

    For each rung (J, R), `choice` is the GPU count or frequency index, `gpus` the GPUs held, and `limited_g` the grams
    that the budget limits. For each step (J, R-1), `kind` and `rank` give its priority: lowest kind first, then
    lowest rank.
    """

    choice: IntArray
    gpus: IntArray
    limited_g: FloatArray
    kind: IntArray
    rank: FloatArray


def count_ladders(jobs: ElasticJobs, step: IntArray, period: Period, charge: Charge = "job") -> Ladders:
    """Return every job's ladder of GPU counts (0, then the allowed counts) at its frequency index `step` (J,)."""
    rows = np.arange(len(jobs))
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / jobs.steps_per_s
    watts = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None]
    held = jobs.allowed
    held[:, 0] = True
    # Allowed counts move to the front; the other counts follow, and `NO_STEP` keeps them out of reach.
    choice = np.argsort(~held, axis=1, kind="stable").astype(np.int64)
    left_s, watts = np.take_along_axis(left_s, choice, axis=1), np.take_along_axis(watts, choice, axis=1)
    return _ladders(choice, choice, left_s, watts, np.take_along_axis(held, choice, axis=1), period, charge)


def frequency_ladders(
    jobs: ElasticJobs, gpus: IntArray, step: IntArray, period: Period, charge: Charge = "job"
) -> Ladders:
    """Return every job's ladder of frequencies from index `step` (J,) up on `gpus` (J,) GPUs; no step with 0 GPUs."""
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
    # A job without GPUs has infinite time, but uses no energy.
    energy_j = watts * np.where(np.isinf(left_s), 0.0, left_s)
    limited_g = period.grams(watts, left_s)
    kind, rank = ranked(left_s, energy_j, energy_j if charge == "job" else limited_g)
    kind[~held[:, 1:]] = NO_STEP
    return Ladders(choice=choice, gpus=gpus, limited_g=limited_g, kind=kind, rank=rank)


def ranked(left_s: FloatArray, energy_j: FloatArray, charged: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the kind and the rank of the steps (J, R-1), given times, energies and charges of the rungs (J, R).

    The carbon patent's benefit of a step from time T1 and emissions C1 to T2 and C2 is ((T1 - T2)/T̄) / ((C2 - C1)/C).
    The mean time T̄, the total C, intensity and PUE are the same factors for all steps. They are left out: the order
    stays the same, and ranks stay valid while other jobs take steps.

    A job's first GPUs come before all other steps, by smallest T·C. Next come steps that need no more energy (within
    `SAME_CHARGE`), by T1 - T2, then all others by (T1 - T2)/(C2 - C1). A step that does not make its job faster is
    never taken.
    """
    next_s = left_s[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        faster_s, dearer = left_s[:, :-1] - next_s, np.diff(charged, axis=1)
        # If speed is proportional to the GPU count, the charges of both rungs are equal up to rounding.
        first, saves = np.isinf(left_s[:, :-1]), dearer <= SAME_CHARGE * charged[:, 1:]
        rank = np.where(first, next_s * energy_j[:, 1:], np.where(saves, -faster_s, -faster_s / dearer))
        kind = np.where(first, FIRST_GPUS, np.where(saves, SAVES_ENERGY, COSTS_ENERGY))
        return np.where(faster_s > 0.0, kind, NO_STEP).astype(np.int64), rank


PastBudget = Literal["next", "stop"]
"""If the best step would exceed the budget, `next` takes the next best that fits; `stop` ends the stage (patent)."""

BUDGET_MARGIN: Final = 1e-11
"""Fraction of the budget kept unused, so that rounding in another order of summation cannot exceed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """Result of a climb: each job's GPU count or frequency index (J,), and the limits that stopped it."""

    choice: IntArray
    short_of_budget: bool
    short_of_gpus: bool


def climb(
    ladders: Ladders, *, gpus: int, budget_g: float, past_budget: PastBudget = "next", least_only: bool = False
) -> Climbed:
    """Climb all ladders from their lowest rungs, always by the step of highest priority; ties go to the first job.

    A step is taken only if enough GPUs are free and the emissions that the budget limits stay within it. A job whose
    first GPUs exceed the budget is skipped, even with ``past_budget="stop"``. After a step that lowers emissions, steps
    skipped because of the budget are tried again. With `least_only`, only first GPUs are given.
    """
    limit_g = budget_g * (1.0 - BUDGET_MARGIN)
    # Lists, because reading single elements of arrays is slow.
    kind, rank = ladders.kind.tolist(), ladders.rank.tolist()
    held, limited_g = ladders.gpus.tolist(), ladders.limited_g.tolist()
    steps = ladders.kind.shape[1]
    rung = [0] * len(kind)
    free = gpus - int(ladders.gpus[:, 0].sum())
    spent_g = math.fsum(ladders.limited_g[:, 0])
    heap = [(kind[row][0], rank[row][0], row) for row in range(len(kind)) if steps and kind[row][0] != NO_STEP]
    heapq.heapify(heap)
    passed: list[tuple[int, float, int]] = []
    short_of_gpus = False
    while heap:
        entry = heapq.heappop(heap)
        what, _, row = entry
        if least_only and what != FIRST_GPUS:
            break
        at = rung[row]
        wanted = held[row][at + 1] - held[row][at]
        change_g = limited_g[row][at + 1] - limited_g[row][at]
        if wanted > free:
            short_of_gpus = True
        elif spent_g + change_g > limit_g:
            passed.append(entry)
            if past_budget == "stop" and what != FIRST_GPUS:
                break
        else:
            rung[row] = at = at + 1
            free -= wanted
            spent_g += change_g
            if at < steps and kind[row][at] != NO_STEP:
                heapq.heappush(heap, (kind[row][at], rank[row][at], row))
            if change_g < 0.0:
                while passed:
                    heapq.heappush(heap, passed.pop())
    choice = ladders.choice[range(len(rung)), rung]
    return Climbed(choice=choice, short_of_budget=bool(passed), short_of_gpus=short_of_gpus)

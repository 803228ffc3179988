"""Planners compared in the carbon study: taut with a price on energy, the patent's two stages, one stage, baselines."""

import heapq
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from scheduler_core.planning.carbon.allocator import STAGES, Stage, allocate
from scheduler_core.planning.carbon.jobs import BudgetRule, CountsAndFrequencies, ElasticJobs, Period, Planner
from scheduler_core.types import FloatArray, IntArray


def greedy_at_max(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
    """Give GPUs one by one to the job whose run time decreases most, all at the highest frequency.

    Before that, every job gets its fewest allowed GPUs, shortest job first. GPUs whose emissions would exceed the
    budget are not given; otherwise energy is ignored.

    References
    ----------
    Optimus: an efficient dynamic resource scheduler for deep learning clusters (EuroSys 2018): source of the rule.
    """
    step = np.full(len(jobs), len(jobs.mhz) - 1, dtype=np.int64)
    left_s, grams = _every_count(jobs, step, period)
    allowed = [np.flatnonzero(row).tolist() for row in jobs.allowed]
    seconds, period_g = left_s.tolist(), grams.tolist()
    count = np.zeros(len(jobs), dtype=np.int64)
    free, left_g = gpus, period.budget_g
    # Sort by: first GPUs (0) or additional ones (1), run time or minus the seconds saved, order of arrival.
    heap = [(0, seconds[row][allowed[row][0]], at, int(row), 0) for at, row in enumerate(_by_arrival(jobs).tolist())]
    heapq.heapify(heap)
    while heap and free > 0:
        _, _, at, row, rung = heapq.heappop(heap)
        wanted, held = allowed[row][rung], int(count[row])
        more_g = period_g[row][wanted] - period_g[row][held]
        if wanted - held > free or more_g > left_g:
            continue
        count[row] = wanted
        free -= wanted - held
        left_g -= more_g
        if rung + 1 < len(allowed[row]):
            saved_s = seconds[row][wanted] - seconds[row][allowed[row][rung + 1]]
            if saved_s > 0.0:
                heapq.heappush(heap, (1, -saved_s, at, row, rung + 1))
    return _plan(count, step)


def fixed_at_optimal(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
    """Run jobs with requested GPUs at energy-optimal frequencies, in order of arrival; skip jobs that do not fit.

    The request is `rigid_gpus`; an elastic job gets its fewest allowed GPUs.
    """
    step = jobs.optimal_step
    _, grams = _every_count(jobs, step, period)
    return _plan(_in_order(jobs, grams, gpus, period.budget_g, strict=False), step)


def fifo_at_max(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
    """Run jobs with requested GPUs at the highest frequency, first in, first out, without skipping any job."""
    step = np.full(len(jobs), len(jobs.mhz) - 1, dtype=np.int64)
    _, grams = _every_count(jobs, step, period)
    return _plan(_in_order(jobs, grams, gpus, period.budget_g, strict=True), step)


def _every_count(jobs: ElasticJobs, step: IntArray, period: Period) -> tuple[FloatArray, FloatArray]:
    """Return remaining run time, and grams emitted within the period, by job and GPU count (J, N+1)."""
    rows = np.arange(len(jobs))
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / jobs.steps_per_s
    watts = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None]
    return left_s, replace(period, rule="period").grams(watts, left_s)


def _in_order(jobs: ElasticJobs, grams: FloatArray, gpus: int, budget_g: float, *, strict: bool) -> IntArray:
    """Return each job's GPU count: its fewest allowed GPUs if they fit, else 0; older jobs first.

    With `strict`, no job is served after one that does not fit.
    """
    wanted = jobs.allowed.argmax(axis=1)
    count = np.zeros(len(jobs), dtype=np.int64)
    free, left_g = gpus, budget_g
    for row in _by_arrival(jobs):
        if wanted[row] <= free and grams[row, wanted[row]] <= left_g:
            count[row] = wanted[row]
            free -= int(wanted[row])
            left_g -= float(grams[row, wanted[row]])
        elif strict:
            break
    return count


def _by_arrival(jobs: ElasticJobs) -> IntArray:
    """Return the row indices (J,), oldest job first; jobs of equal age keep their order."""
    return np.asarray(np.argsort(-jobs.age_s, kind="stable"), dtype=np.int64)


def _plan(count: IntArray, step: IntArray) -> CountsAndFrequencies:
    return CountsAndFrequencies(gpus=count, step=step)


TAUT, TWO_STAGES, BOUND = "taut", "two_stages", "bound"

PRICES_S_PER_KWH: Final = (0.0, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
"""Prices of energy, in seconds of run time per kWh: from 0 (energy does not matter) to a price at which hardly any
additional GPU or higher frequency saves enough time for its energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A planner and how it is simulated.

    With `as_requested`, jobs run with their requested GPUs. An arm without `follows_budget` is simulated without a
    budget only: its counts and frequencies do not depend on the budget, so that a smaller budget would only delay jobs.
    An arm with `stages` is the patent's procedure, which takes the rule of the budget; the other arms keep budgets of
    single periods. An arm with `at_prices` has no budget but a price of energy.
    """

    planner: Planner = allocate
    as_requested: bool = False
    follows_budget: bool = True
    stages: tuple[Stage, ...] = ()
    at_prices: bool = False

    def keeps(self, rule: BudgetRule) -> bool:
        """Return whether the arm can keep a budget by this rule."""
        return self.follows_budget and (rule == "period" or bool(self.stages))

    def at(self, price_s_per_kwh: float | None) -> Planner:
        """Return the planner, with the given price of energy if it is not None."""
        if price_s_per_kwh is not None:
            return partial(allocate, price_s_per_kwh=price_s_per_kwh)
        return partial(allocate, stages=self.stages) if self.stages else self.planner


BASELINES: Final = {
    "greedy_max": Arm(planner=greedy_at_max),
    "fixed_optimal": Arm(planner=fixed_at_optimal, as_requested=True, follows_budget=False),
    "fifo_max": Arm(planner=fifo_at_max, as_requested=True, follows_budget=False),
}
"""Simple planners: greedy counts at the highest frequency, requested counts at energy-optimal frequencies, and first
in, first out at the highest frequency."""

ARMS: Final[dict[str, Arm | None]] = {
    TAUT: Arm(at_prices=True, follows_budget=False),
    TWO_STAGES: Arm(stages=STAGES),
    "counts_alone": Arm(stages=("counts",)),
    "frequency_alone": Arm(stages=STAGES, as_requested=True),
    **BASELINES,
    BOUND: None,
}
"""All arms by name. `TAUT` has a constant price on energy instead of a budget for each period (ours); one stage of the
patent alone: counts at energy-optimal frequencies, frequencies at requested counts. `BOUND` is the lower bound."""

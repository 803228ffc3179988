"""The planners that are compared: taut at a price of energy, the source's two stages, one stage, and baselines.

The allocator itself is in `scheduler_core.planning.carbon`. Called by `runs`.
"""

import heapq
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from pipelines.studies.carbon.simulation import Planner
from scheduler_core.planning.carbon.allocator import Stage, allocate
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.priced import priced
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray


def greedy_at_max(
    jobs: ElasticJobs, *, gpus: int, intensity_g_per_kwh: float, budget_g: float, period_s: float, pue: float = 1.0
) -> CountsAndFrequencies:
    """Give one GPU after another to the job whose run time falls most, all at the highest frequency.

    First GPUs go before others, by shortest run time. Energy plays no part but for the budget: what would pass it is
    passed over.

    References
    ----------
    Optimus: an efficient dynamic resource scheduler for deep learning clusters (EuroSys 2018), whose rule this is.
    """
    step = np.full(len(jobs), len(jobs.mhz) - 1, dtype=np.int64)
    left_s, grams = _every_count(jobs, step, intensity_g_per_kwh * pue, period_s)
    allowed = [np.flatnonzero(row).tolist() for row in jobs.allowed]
    seconds, period_g = left_s.tolist(), grams.tolist()
    count = np.zeros(len(jobs), dtype=np.int64)
    free, left_g = gpus, budget_g
    # First GPUs (0) before others (1), then by their effect on the run time; ties by arrival.
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


def fixed_at_optimal(
    jobs: ElasticJobs, *, gpus: int, intensity_g_per_kwh: float, budget_g: float, period_s: float, pue: float = 1.0
) -> CountsAndFrequencies:
    """Run requested counts at energy-optimal frequencies, in order of arrival; jobs that do not fit are passed over.

    Every job counts as rigid: `rigid_gpus` is its request, and a job without one gets its fewest GPUs.
    """
    step = jobs.optimal_step
    _, grams = _every_count(jobs, step, intensity_g_per_kwh * pue, period_s)
    return _plan(_in_order(jobs, grams, gpus, budget_g, strict=False), step)


def fifo_at_max(
    jobs: ElasticJobs, *, gpus: int, intensity_g_per_kwh: float, budget_g: float, period_s: float, pue: float = 1.0
) -> CountsAndFrequencies:
    """Run requested counts at the highest frequency, in order of arrival; a job that does not fit blocks later ones."""
    step = np.full(len(jobs), len(jobs.mhz) - 1, dtype=np.int64)
    _, grams = _every_count(jobs, step, intensity_g_per_kwh * pue, period_s)
    return _plan(_in_order(jobs, grams, gpus, budget_g, strict=True), step)


def _every_count(jobs: ElasticJobs, step: IntArray, g_per_kwh: float, period_s: float) -> tuple[FloatArray, FloatArray]:
    """Return run time left and grams within the period by count (J, N+1); without GPUs no grams."""
    rows = np.arange(len(jobs))
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / jobs.steps_per_s
    watts = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None]
    return left_s, g_per_kwh / JOULES_PER_KWH * watts * np.minimum(left_s, period_s)


def _in_order(jobs: ElasticJobs, grams: FloatArray, gpus: int, budget_g: float, *, strict: bool) -> IntArray:
    """Return the GPU count of each job: its request, or its fewest allowed GPUs; older jobs first."""
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
    """Return the rows (J,), older jobs first; jobs of equal age keep their order."""
    return np.asarray(np.argsort(-jobs.age_s, kind="stable"), dtype=np.int64)


def _plan(count: IntArray, step: IntArray) -> CountsAndFrequencies:
    return CountsAndFrequencies(gpus=count, step=step, postponed=count == 0)


TAUT: Final = "taut"
COUNTS: Final[tuple[Stage, ...]] = ("counts",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A planner, whether jobs run at their requested counts, and whether unused budget is kept for later periods.

    If neither counts nor frequencies depend on the budget, jobs use the same energy under any budget and a tighter one
    only makes them wait: such an arm is run without a budget only.
    """

    planner: Planner
    as_requested: bool = False
    banks: bool = False
    follows_budget: bool = True
    prices_s_per_kwh: tuple[float, ...] = ()

    def at(self, price_s_per_kwh: float | None) -> Planner:
        """Return the planner, bound to the price if it takes one."""
        return self.planner if price_s_per_kwh is None else partial(priced, price_s_per_kwh=price_s_per_kwh)


PRICES_S_PER_KWH: Final = (0.0, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
"""From none, which is the allocator without a budget, to a price at which nearly no step is worth it."""

TWO_STAGES: Final = "two_stages"

BASELINES: Final = {
    "greedy_max": Arm(planner=greedy_at_max),
    "fixed_optimal": Arm(planner=fixed_at_optimal, as_requested=True, follows_budget=False),
    "fifo_max": Arm(planner=fifo_at_max, as_requested=True, follows_budget=False),
}
"""Greedy counts at the highest frequency; requested counts, at energy-optimal ones or first in, first out at it."""

ABLATION: Final = {
    "counts_alone": Arm(planner=partial(allocate, stages=COUNTS)),
    "frequency_alone": Arm(planner=allocate, as_requested=True),
}
"""The first stage at energy-optimal frequencies; the second with requested counts, shortest jobs first."""

VARIANTS: Final = {
    TWO_STAGES: Arm(planner=allocate),
    "two_stages_banked": Arm(planner=allocate, banks=True),
}
"""The source's two stages under a budget per period; and with unused budget kept for later (ours)."""

ARMS: Final = {
    TAUT: Arm(planner=priced, prices_s_per_kwh=PRICES_S_PER_KWH, follows_budget=False),
    **VARIANTS,
    **ABLATION,
    **BASELINES,
}
"""taut has a price of energy, the same at all times, in the place of a budget every period (ours)."""

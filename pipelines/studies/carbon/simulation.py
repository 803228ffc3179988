"""Simulate elastic jobs under a planner: a round in every period, and where a job outruns its estimate.

Rounds are the live scheduler's (`scheduler_core.planning.carbon`).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipelines.simulation.elastic import Choice, Progress, Span, run_elastic
from pipelines.studies.carbon.jobs import NODE_GPUS, ArrivingJobs
from scheduler_core.planning.carbon import allocate, carbon_round
from scheduler_core.planning.elastic import BudgetRule, CountsAndFrequencies, ElasticJobs, Period, Planner
from scheduler_core.planning.hourly import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

G_PER_KWH: Final = 1000.0
"""Constant intensity, at which carbon budgets are energy budgets."""

STUCK_S: Final = 86_400.0
"""Maximum time for which jobs wait and none runs; then the budget counts as too small, and the simulation ends."""

ALMOST_S: Final = 1e-9
"""Remaining seconds of a period that count as zero."""


def constant(now_s: float) -> float:  # noqa: ARG001 -- intensities are functions of time
    """Return the intensity `G_PER_KWH`."""
    return G_PER_KWH


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs on nodes of `NODE_GPUS`, the length of a period, what a budget limits, and the intensity by time in g/kWh.

    A period has the intensity of its begin.
    """

    gpus: int
    period_s: float
    rule: BudgetRule = "period"
    intensity: Callable[[float], float] = constant

    @property
    def nodes(self) -> IntArray:
        """Return the GPUs of every node (M,); the last node may have fewer."""
        whole, rest = divmod(self.gpus, NODE_GPUS)
        return np.array([NODE_GPUS] * whole + [rest] * (rest > 0), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Results by job (J,): completion time (NaN if it did not end), energy while running, changes.

    `spent` has the begin of a period, jobs, and their kWh in it. `changes` counts how often a job was stopped, moved or
    given another number of GPUs.
    """

    jct_s: FloatArray
    kwh: FloatArray
    spent: list[tuple[float, IntArray, FloatArray]]
    changes: IntArray

    def grams(self, intensity: Callable[[float], float]) -> FloatArray:
        """Return the grams of every job (J,) at the intensity by time in g/kWh that its periods begin with."""
        grams, at = np.zeros(len(self.kwh)), {begin_s: intensity(begin_s) for begin_s, _, _ in self.spent}
        for begin_s, job, kwh in self.spent:
            grams[job] += kwh * at[begin_s]
        return grams


def simulate(
    jobs: ArrivingJobs, cluster: Cluster, budget_kwh: float, planner: Planner, *, as_requested: bool = False
) -> Simulated:
    """Simulate arriving jobs until all have ended; a round at the start of every period plans for the jobs present.

    By the rule `period` every period has the budget, in kWh at the intensity of its begin; by ``"to-completion"`` it is
    that of the whole run: a plan may emit until its jobs end what the run has not emitted yet. With `as_requested`
    every job is rigid at its requested count. A round is also held, for the rest of the period and of its budget, when
    a job runs beyond its predicted end.
    """
    rounds = _Rounds(jobs, cluster, budget_kwh, planner, as_requested=as_requested)
    from_s = float(jobs.submit_s[0]) // cluster.period_s * cluster.period_s if len(jobs) else None
    state, spans = run_elastic(jobs.submit_s, rounds, jobs.true_s, nodes=len(cluster.nodes), from_s=from_s)
    if spans and rounds.stuck_s < STUCK_S:  # else `decide` has met the last span
        rounds.spend(spans[-1])
    return Simulated(
        jct_s=state.finish_s - jobs.submit_s,
        kwh=rounds.kwh,
        spent=rounds.spent,
        changes=state.changes,
    )


class _Rounds:
    """The rounds of one simulation, with the accounts of energy and budget: the function that decides in the engine."""

    def __init__(
        self, jobs: ArrivingJobs, cluster: Cluster, budget_kwh: float, planner: Planner, *, as_requested: bool
    ) -> None:
        self.jobs, self.cluster, self.budget_kwh = jobs, cluster, budget_kwh
        self.planner, self.as_requested, self.nodes = planner, as_requested, cluster.nodes
        self.opened_s = self.period_ends_s = -np.inf
        self.budget_g = self.spent_g = self.stuck_s = 0.0
        self.ends_s = np.full(len(jobs), np.inf)  # as planned
        self.kwh, self.spent = np.zeros(len(jobs)), list[tuple[float, IntArray, FloatArray]]()

    def __call__(self, now_s: float, here: IntArray, state: Progress, last: Span | None) -> Choice | None:
        if last is not None:
            self.spend(last)
            self.stuck_s = 0.0 if len(last.job) or not len(here) else self.stuck_s + last.until_s - last.from_s
        if self.stuck_s >= STUCK_S:
            return None
        opens = now_s >= self.period_ends_s - ALMOST_S
        if opens:
            self._open(now_s)
        due = (self.ends_s[here[state.gpus[here] > 0]] <= now_s + ALMOST_S).any()
        gpus, step, place = state.gpus[here].copy(), state.step[here].copy(), state.place[here].copy()
        # A job starts with a period.
        known = self.jobs.submit_s[here] <= self.opened_s + ALMOST_S
        if known.any() and (opens or due):
            gpus[known], step[known], place[known] = self._round(now_s, here[known], state)
        again_s = np.inf
        if np.isfinite(self.budget_g):
            again_s = float(self.ends_s[here[gpus > 0]].min(initial=np.inf))
        # Without the least distance, rounding could hold the clock.
        until_s = max(min(self.period_ends_s, again_s), now_s + ALMOST_S)
        return Choice(gpus=gpus, step=step, place=place, until_s=until_s, at_events=False)

    def _round(self, now_s: float, here: IntArray, state: Progress) -> tuple[IntArray, IntArray, IntArray]:
        """Hold a round for the rest of the period; return GPUs, frequencies and places."""
        jobs, allowed_g = self.jobs, max(self.budget_g - self.spent_g, 0.0)
        done = jobs.steps[here] * (1.0 - state.left[here])
        found = carbon_round(
            jobs.submitted(here, as_requested=self.as_requested).after(done, now_s - jobs.submit_s[here]),
            Period(
                intensity_g_per_kwh=self.intensity,
                budget_g=allowed_g,
                period_s=self.period_ends_s - now_s,
                rule=self.cluster.rule,
            ),
            self.nodes,
            places=state.place[here],
            planner=self.planner,
        )
        self.ends_s[here] = now_s + found.left_s
        return found.plan.gpus, found.plan.step, found.placed

    def _open(self, now_s: float) -> None:
        """Open a period; by the rule `period`, it has a budget of its own."""
        first, self.opened_s, self.period_ends_s = np.isinf(self.opened_s), now_s, now_s + self.cluster.period_s
        self.intensity = self.cluster.intensity(now_s)
        if first or self.cluster.rule == "period":
            self.budget_g, self.spent_g = self.budget_kwh * self.intensity, 0.0

    def spend(self, span: Span) -> None:
        """Add the energy of a span's jobs to the accounts."""
        kwh = span.gpus * self.jobs.watts[span.job, span.step] * span.ran_s / JOULES_PER_KWH
        self.kwh[span.job] += kwh
        self.spent.append((self.opened_s, span.job, kwh))
        self.spent_g += float(kwh.sum()) * self.intensity


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


def fifo_at_max(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
    """Run jobs with requested GPUs at the highest frequency, first in, first out, without skipping any job."""
    step = np.full(len(jobs), len(jobs.mhz) - 1, dtype=np.int64)
    _, grams = _every_count(jobs, step, period)
    return _plan(_in_order(jobs, grams, gpus, period.budget_g), step)


def _every_count(jobs: ElasticJobs, step: IntArray, period: Period) -> tuple[FloatArray, FloatArray]:
    """Return remaining run time, and grams emitted within the period, by job and GPU count (J, N+1)."""
    rows = np.arange(len(jobs))
    with np.errstate(divide="ignore"):
        left_s = (jobs.steps_left / jobs.perf[rows, step])[:, None] / jobs.steps_per_s
    watts = np.arange(jobs.most_gpus + 1) * jobs.watts[rows, step][:, None]
    return left_s, replace(period, rule="period").grams(watts, left_s)


def _in_order(jobs: ElasticJobs, grams: FloatArray, gpus: int, budget_g: float) -> IntArray:
    """Return each job's GPU count: its fewest allowed GPUs, older jobs first; 0 from the first that does not fit on."""
    wanted = jobs.allowed.argmax(axis=1)
    count = np.zeros(len(jobs), dtype=np.int64)
    free, left_g = gpus, budget_g
    for row in _by_arrival(jobs):
        if wanted[row] > free or grams[row, wanted[row]] > left_g:
            break
        count[row] = wanted[row]
        free -= int(wanted[row])
        left_g -= float(grams[row, wanted[row]])
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
    """A planner, and the budget rules under which it is simulated with budgets; without any it has no budget.

    With `as_requested`, jobs run with their requested GPUs; such a plan does not depend on a budget, so that a smaller
    one would only delay jobs. With `at_prices`, the planner takes prices of energy.
    """

    planner: Planner = allocate
    rules: tuple[BudgetRule, ...] = ()
    as_requested: bool = False
    at_prices: bool = False


BASELINES: Final = {
    "greedy_max": Arm(planner=greedy_at_max, rules=("period",)),
    "fifo_max": Arm(planner=fifo_at_max, as_requested=True),
}
"""Simple planners at the highest frequency: greedy counts, and requested counts first in, first out."""

ARMS: Final[dict[str, Arm | None]] = {
    TAUT: Arm(at_prices=True),
    TWO_STAGES: Arm(rules=("period", "to-completion")),
    **BASELINES,
    BOUND: None,
}
"""All arms by name. `TAUT` has a constant price on energy instead of a budget for each period (ours), `TWO_STAGES` is
the patent's procedure, `BOUND` the lower bound."""

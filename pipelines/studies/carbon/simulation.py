"""Simulate elastic jobs under an energy budget: a round in every period, and where a job outruns its estimate.

Rounds are the live scheduler's (`scheduler_core.planning.carbon.allocator`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.elastic import Choice, Progress, Span, run_elastic
from pipelines.studies.carbon.jobs import NODE_GPUS, ArrivingJobs
from scheduler_core.planning.carbon.allocator import carbon_round
from scheduler_core.planning.carbon.jobs import BudgetRule, Period, Planner
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

G_PER_KWH: Final = 1000.0
"""Constant intensity, at which carbon budgets are energy budgets."""

STUCK_S: Final = 86_400.0
"""Maximum time for which jobs wait and none runs; then the budget counts as too small, and the simulation ends."""

ALMOST_S: Final = 1e-9
"""Remaining time of a period that counts as zero."""


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
    given another number of GPUs. `over_budget` is the maximum, over periods (or of the run, by the rule to completion),
    of actual emissions divided by the budget, minus 1, and at least 0; `over_planned` the same of planned emissions.
    """

    jct_s: FloatArray
    kwh: FloatArray
    spent: list[tuple[float, IntArray, FloatArray]]
    changes: IntArray
    over_budget: float
    over_planned: float

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
    rounds.close()
    return Simulated(
        jct_s=state.finish_s - jobs.submit_s,
        kwh=rounds.kwh,
        spent=rounds.spent,
        changes=state.changes,
        over_budget=rounds.over,
        over_planned=rounds.over_planned,
    )


class _Rounds:
    """The rounds of one simulation, with the accounts of energy and budget: the function that decides in the engine."""

    def __init__(
        self, jobs: ArrivingJobs, cluster: Cluster, budget_kwh: float, planner: Planner, *, as_requested: bool
    ) -> None:
        self.jobs, self.cluster, self.budget_kwh = jobs, cluster, budget_kwh
        self.planner, self.as_requested = planner, as_requested
        self.opened_s = self.period_ends_s = -np.inf
        self.budget_g = self.spent_g = self.over = self.over_planned = self.stuck_s = 0.0
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
            self.cluster.nodes,
            places=state.place[here],
            planner=self.planner,
        )
        if allowed_g > 0.0:
            self.over_planned = max(self.over_planned, float(found.planned_g.sum()) / allowed_g - 1.0)
        self.ends_s[here] = now_s + found.left_s
        return found.plan.gpus, found.plan.step, found.placed

    def _open(self, now_s: float) -> None:
        """Open a period; by the rule `period`, it closes the account of the last one."""
        first, self.opened_s, self.period_ends_s = np.isinf(self.opened_s), now_s, now_s + self.cluster.period_s
        self.intensity = self.cluster.intensity(now_s)
        if first or self.cluster.rule == "period":
            self.close()
            self.budget_g, self.spent_g = self.budget_kwh * self.intensity, 0.0

    def spend(self, span: Span) -> None:
        """Add the energy of a span's jobs to the accounts."""
        kwh = span.gpus * self.jobs.watts[span.job, span.step] * span.ran_s / JOULES_PER_KWH
        self.kwh[span.job] += kwh
        self.spent.append((self.opened_s, span.job, kwh))
        self.spent_g += float(kwh.sum()) * self.intensity

    def close(self) -> None:
        """Record by how much emissions exceeded the budget."""
        if self.budget_g > 0.0:
            self.over = max(self.over, self.spent_g / self.budget_g - 1.0)

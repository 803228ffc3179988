"""Simulation of elastic jobs under a carbon budget: a round in every period, and where a job outruns its estimate.

Rounds are the live scheduler's (`scheduler_core.planning.carbon.round`), and jobs run in the elastic engine
(`pipelines.simulation.elastic`). Planners are in `arms`, jobs in `jobs`. Called by `runs` and `months`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.elastic import Choice, Progress, Span, run_elastic
from pipelines.studies.carbon.jobs import NODE_GPUS, ArrivingJobs
from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.allocator import BudgetRule
from scheduler_core.planning.carbon.budget import Bank
from scheduler_core.planning.carbon.monitor import JobStates
from scheduler_core.planning.carbon.round import Planner, Round, carbon_round
from scheduler_core.planning.carbon.round import Site as RoundSite
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

STUCK_S: Final = 86_400.0
"""Maximum time for which jobs wait and none runs; then the budget counts as too small, and the simulation ends."""

ALMOST_S: Final = 1e-9
"""Remaining time of a period that counts as zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster: equal GPUs on nodes, power of an idle GPU, carbon intensity of the grid, and budget.

    `intensity_g_per_kwh` and `allowance_g` return the intensity of a period and the grams that it may emit, given its
    start in seconds of the simulation. With a `bank`, unused grams are kept for later periods, and excess emissions are
    subtracted from later budgets (ours). By the `rule` ``"to-completion"`` the first allowance is the budget of the
    whole run: a plan may emit until its jobs end what the run has not emitted yet. `restart_s` and `at_events` are
    explained in `simulate`.
    """

    gpus: int
    period_s: float
    intensity_g_per_kwh: Callable[[float], float]
    allowance_g: Callable[[float], float]
    bank: Bank | None = None
    rule: BudgetRule = "period"
    idle_w: float = 0.0
    pue: float = 1.0
    restart_s: float = 0.0
    at_events: bool = False
    node_gpus: int = NODE_GPUS

    @property
    def nodes(self) -> IntArray:
        """Return the GPUs of every node (M,); the last node may have fewer."""
        whole, rest = divmod(self.gpus, self.node_gpus)
        return np.array([self.node_gpus] * whole + [rest] * (rest > 0), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Results of a simulation.

    For each job (J,): completion time `jct_s` (NaN if it did not end), energy, grams and GPU time while running, and
    `changes`, how often it was stopped, moved or given another number of GPUs. `idle_kwh` is the energy of GPUs without
    a job from the first submission to the last end. Energy includes the PUE. `over_budget` is the maximum, over
    periods (or of the run, by the rule to completion), of actual emissions divided by the budget, minus 1, and at least
    0; `over_planned` the same of planned emissions.
    """

    jct_s: FloatArray
    kwh: FloatArray
    grams: FloatArray
    gpu_s: FloatArray
    changes: IntArray
    idle_kwh: float
    idle_g: float
    over_budget: float
    over_planned: float
    rounds: int

    @property
    def unfinished(self) -> int:
        """Return the number of jobs that had not ended when the simulation ended."""
        return int(np.isnan(self.jct_s).sum())


def simulate(
    jobs: ArrivingJobs, site: Site, planner: Planner | None = None, *, as_requested: bool = False
) -> Simulated:
    """Simulate arriving jobs until all have ended; a round at the start of every period plans for the jobs present.

    `planner` is the patent's two stages by default. With `as_requested` every job is rigid at its requested count. A
    round is also held, for the rest of the period and of its budget, when a job runs beyond its predicted end under a
    budget, and with `site.at_events` whenever a job arrives or ends. A job that is stopped, moved or given another
    number of GPUs makes no progress for `site.restart_s`.

    Raises
    ------
    BadInput
        If a period is not a positive time.
    """
    if not site.period_s > 0.0:
        raise BadInput(f"a period of {site.period_s} s, expected more than 0")
    rounds = _Rounds(jobs, site, planner, as_requested=as_requested)
    from_s = float(jobs.submit_s[0]) // site.period_s * site.period_s if len(jobs) else None
    state, spans = run_elastic(
        jobs.submit_s, rounds, jobs.true_s, restart_s=site.restart_s, nodes=len(site.nodes), from_s=from_s
    )
    return rounds.results(state, spans)


class _Rounds:
    """The rounds of one simulation, with the accounts of energy and budget: the function that decides in the engine."""

    def __init__(self, jobs: ArrivingJobs, site: Site, planner: Planner | None, *, as_requested: bool) -> None:
        self.jobs, self.site, self.planner, self.as_requested = jobs, site, planner, as_requested
        self.opened_s = self.period_ends_s = -np.inf
        self.last: Round | None = None
        self.bank = site.bank
        self.share_g = self.allowed_g = self.spent_g = 0.0
        self.over = self.over_planned = 0.0
        self.ends_s = np.full(len(jobs), np.inf)  # as planned
        self.intensities: list[float] = []  # of every span
        self.stuck_s = 0.0
        self.rounds = 0

    def __call__(self, now_s: float, here: IntArray, state: Progress, last: Span | None) -> Choice | None:
        if last is not None:
            self.spent_g += float(self._kwh(last).sum()) * self.intensities[-1]
            lasted_s = last.until_s - last.from_s
            self.stuck_s = 0.0 if len(last.job) or not len(here) else self.stuck_s + lasted_s
        if self.stuck_s >= STUCK_S:
            return None
        opens = now_s >= self.period_ends_s - ALMOST_S
        if opens:
            self._open_period(now_s)
        running = here[state.gpus[here] > 0]
        due = (self.ends_s[running] <= now_s + ALMOST_S).any()
        gpus, step, place = state.gpus[here].copy(), state.step[here].copy(), state.place[here].copy()
        # A job starts with a period, or at its arrival if rounds are held at arrivals.
        known = self.jobs.submit_s[here] <= (now_s if self.site.at_events else self.opened_s) + ALMOST_S
        if known.any() and (opens or due or self.site.at_events):
            gpus[known], step[known], place[known] = self._round(now_s, here[known], state)
        self.intensities.append(self.intensity)
        again_s = np.inf
        if np.isfinite(self.allowed_g):
            again_s = float(self.ends_s[here[gpus > 0]].min(initial=np.inf))
        # Without the least distance, rounding could hold the clock.
        until_s = max(min(self.period_ends_s, again_s), now_s + ALMOST_S)
        return Choice(gpus=gpus, step=step, place=place, until_s=until_s, at_events=self.site.at_events)

    def _round(self, now_s: float, here: IntArray, state: Progress) -> tuple[IntArray, IntArray, IntArray]:
        """Hold a round of the live scheduler for the rest of the period; return GPUs, frequencies and places."""
        site, jobs = self.site, self.jobs
        allowed_g = max(self.allowed_g - self.spent_g, 0.0)
        found = carbon_round(
            jobs.submitted(here, as_requested=self.as_requested),
            JobStates(
                submit_ts=jobs.submit_s[here],
                seen_ts=np.full(len(here), now_s),
                steps_done=jobs.steps[here] * (1.0 - state.left[here]),
                gpus=state.gpus[here],
                step=state.step[here],
                ended=np.zeros(len(here), np.bool_),
            ),
            now_s,
            feed=lambda _: self.intensity,
            reading=None if self.last is None else self.last.reading,
            budget_g=allowed_g,
            free_gpus=site.nodes,
            site=RoundSite(
                period_s=self.period_ends_s - now_s, fallback_g_per_kwh=self.intensity, pue=site.pue, rule=site.rule
            ),
            places=state.place[here],
            planner=self.planner,
        )
        self.last = found
        self.rounds += 1
        if allowed_g > 0.0:
            self.over_planned = max(self.over_planned, float(found.planned_g.sum()) / allowed_g - 1.0)
        self.ends_s[here] = now_s + found.left_s
        return found.plan.gpus, found.plan.step, found.placed.gpus

    def _open_period(self, now_s: float) -> None:
        """Close the account of the last period, and read the intensity and budget of the next one."""
        self.intensity = self.site.intensity_g_per_kwh(now_s)
        first, self.opened_s, self.period_ends_s = np.isinf(self.opened_s), now_s, now_s + self.site.period_s
        if self.site.rule == "to-completion" and not first:
            return
        self._close()
        if self.bank is not None and not first:
            self.bank = self.bank.after(share_g=self.share_g, spent_g=self.spent_g)
        self.share_g = self.site.allowance_g(now_s)
        self.allowed_g = self.share_g if self.bank is None else self.bank.allowance_g(share_g=self.share_g)
        self.spent_g = 0.0

    def _close(self) -> None:
        if self.allowed_g > 0.0:
            self.over = max(self.over, self.spent_g / self.allowed_g - 1.0)

    def _kwh(self, span: Span) -> FloatArray:
        return span.gpus * self.jobs.watts[span.job, span.step] * span.ran_s * (self.site.pue / JOULES_PER_KWH)

    def results(self, state: Progress, spans: list[Span]) -> Simulated:
        """Return the results of all spans."""
        kwh, grams, gpu_s = (np.zeros(len(self.jobs)) for _ in range(3))
        end_s, idle_kwh, idle_g = float(state.finish_s.max(initial=-np.inf)), 0.0, 0.0
        if np.isnan(end_s):
            end_s = np.inf
        for span, intensity in zip(spans, self.intensities, strict=True):
            drawn = self._kwh(span)
            kwh[span.job] += drawn
            grams[span.job] += drawn * intensity
            gpu_s[span.job] += span.gpus * span.ran_s
            idle_s = self.site.gpus * (min(span.until_s, end_s) - span.from_s) - float(span.gpus @ span.ran_s)
            idle_kwh += (idle := idle_s * self.site.idle_w * self.site.pue / JOULES_PER_KWH)
            idle_g += idle * intensity
        if spans and not self.stuck_s:
            self.spent_g += float(self._kwh(spans[-1]).sum()) * self.intensities[-1]
        self._close()
        return Simulated(
            jct_s=state.finish_s - self.jobs.submit_s,
            kwh=kwh,
            grams=grams,
            gpu_s=gpu_s,
            changes=state.changes,
            idle_kwh=idle_kwh,
            idle_g=idle_g,
            over_budget=self.over,
            over_planned=self.over_planned,
            rounds=self.rounds,
        )

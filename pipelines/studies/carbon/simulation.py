"""Simulation of elastic jobs: a planning round in every period, progress at actual speeds, energy and emissions.

Planners are in `arms`, jobs in `jobs`. Called by `runs` and `months`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from pipelines.studies.carbon.jobs import ArrivingJobs
from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.budget import Bank
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

STUCK_S: Final = 86_400.0
"""Maximum time for which jobs wait and none runs; then the budget counts as too small, and the simulation ends."""

ALMOST_S: Final = 1e-9
"""Remaining time of a period that counts as zero."""


class Planner(Protocol):
    """Function that makes a plan for one period: `allocate`, or a baseline."""

    def __call__(
        self,
        jobs: ElasticJobs,
        *,
        gpus: int,
        intensity_g_per_kwh: float,
        budget_g: float,
        period_s: float,
        pue: float = 1.0,
    ) -> CountsAndFrequencies:
        """Return the plan for a period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster: number of equal GPUs, power of an idle GPU, carbon intensity of the grid, and budget.

    `intensity_g_per_kwh` and `allowance_g` return the intensity of a period and the grams that it may emit, given its
    start in seconds of the simulation. With a `bank`, unused grams are kept for later periods, and excess emissions are
    subtracted from later budgets (ours). `restart_s` and `at_events` are explained in `simulate`.
    """

    gpus: int
    period_s: float
    intensity_g_per_kwh: Callable[[float], float]
    allowance_g: Callable[[float], float]
    bank: Bank | None = None
    idle_w: float = 0.0
    pue: float = 1.0
    restart_s: float = 0.0
    at_events: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Results of a simulation.

    For each job (J,): completion time `jct_s` (NaN if it did not end), energy, grams and GPU time while running, and
    `changes`, how often it got another number of GPUs or was postponed after its start. `idle_kwh` is the energy of
    GPUs without a job from the first submission to the last end. Energy includes the PUE. `over_budget` is the maximum,
    over periods, of actual emissions divided by the budget, minus 1, and at least 0; planned emissions never exceed the
    budget.
    """

    jct_s: FloatArray
    kwh: FloatArray
    grams: FloatArray
    gpu_s: FloatArray
    changes: IntArray
    idle_kwh: float
    idle_g: float
    over_budget: float
    rounds: int

    @property
    def unfinished(self) -> int:
        """Return the number of jobs that had not ended when the simulation ended."""
        return int(np.isnan(self.jct_s).sum())


def simulate(jobs: ArrivingJobs, site: Site, planner: Planner, *, as_requested: bool = False) -> Simulated:
    """Simulate arriving jobs until all have ended; a round at the start of every period plans for the jobs present.

    With `as_requested` every job is rigid at its requested count. With `site.at_events` a round is also held whenever a
    job arrives or ends, for the rest of the period and of its budget. A job that gets another number of GPUs, or
    continues after it was postponed, makes no progress for `site.restart_s`.

    Raises
    ------
    BadInput
        If a period is not a positive time.
    """
    if not site.period_s > 0.0:
        raise BadInput(f"a period of {site.period_s} s, expected more than 0")
    world = _World(jobs, site)
    while world.advance_to_work():
        world.round(planner, as_requested=as_requested)
    return world.simulated()


class _World:
    """The state of one simulation."""

    def __init__(self, jobs: ArrivingJobs, site: Site) -> None:
        many = len(jobs)
        self.jobs, self.site = jobs, site
        self.now_s = float(jobs.submit_s[0]) // site.period_s * site.period_s if many else 0.0
        self.period_ends_s = self.now_s
        self.done, self.gpu_s, self.kwh, self.grams = (np.zeros(many) for _ in range(4))
        self.end_s = np.full(many, np.nan)
        self.held = np.zeros(many, dtype=np.int64)
        self.changes = np.zeros(many, dtype=np.int64)
        self.bank = site.bank
        self.share_g = self.allowed_g = self.spent_g = self.over = 0.0
        self.idle_kwh = self.idle_g = 0.0
        self.stuck_s = 0.0
        self.rounds = 0

    def advance_to_work(self) -> bool:
        """Start a new period if the last has ended; return False if the simulation is over."""
        waiting = np.isnan(self.end_s)
        if not waiting.any() or self.stuck_s >= STUCK_S:
            return False
        if self.now_s >= self.period_ends_s - ALMOST_S:
            self._open_period()
        return True

    def round(self, planner: Planner, *, as_requested: bool) -> None:
        """Plan for the jobs present, and run them until the next round."""
        rows = np.flatnonzero(np.isnan(self.end_s) & (self.jobs.submit_s <= self.now_s + ALMOST_S))
        span_s = self.period_ends_s - self.now_s
        count, step = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        if len(rows):
            seen = self.jobs.planner_view(rows, self.done[rows], self.now_s, as_requested=as_requested)
            plan = planner(
                seen,
                gpus=self.site.gpus,
                intensity_g_per_kwh=self.intensity,
                budget_g=max(self.allowed_g - self.spent_g, 0.0),
                period_s=span_s,
                pue=self.site.pue,
            )
            count, step = plan.gpus, plan.step
            self.rounds += 1
        self._run(rows, count, step, span_s)

    def simulated(self) -> Simulated:
        """Return the results."""
        return Simulated(
            jct_s=self.end_s - self.jobs.submit_s,
            kwh=self.kwh,
            grams=self.grams,
            gpu_s=self.gpu_s,
            changes=self.changes,
            idle_kwh=self.idle_kwh,
            idle_g=self.idle_g,
            over_budget=self.over,
            rounds=self.rounds,
        )

    def _open_period(self) -> None:
        """Bank the unused budget of the last period, and read the intensity and budget of the next one."""
        if self.allowed_g > 0.0:
            self.over = max(self.over, self.spent_g / self.allowed_g - 1.0)
        if self.bank is not None:
            self.bank = self.bank.after(share_g=self.share_g, spent_g=self.spent_g)
        self.intensity = self.site.intensity_g_per_kwh(self.now_s)
        self.share_g = self.site.allowance_g(self.now_s)
        self.allowed_g = self.share_g if self.bank is None else self.bank.allowance_g(share_g=self.share_g)
        self.spent_g = 0.0
        self.period_ends_s = self.now_s + self.site.period_s

    def _run(self, rows: IntArray, count: IntArray, step: IntArray, span_s: float) -> None:
        """Run the planned jobs until the next round, and add the energy of jobs and idle GPUs."""
        jobs, before = self.jobs, self.held[rows]
        changed = (count != before) & (self.done[rows] > 0.0)
        self.changes[rows] += changed
        lost_s = np.where(changed & (count > 0), self.site.restart_s, 0.0)
        speed = np.where(count > 0, jobs.steps_per_s[rows, count] * jobs.perf[rows, step], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            left_s = np.where(speed > 0.0, lost_s + (jobs.steps[rows] - self.done[rows]) / speed, np.inf)
        if self.site.at_events:
            span_s = self._until_event(left_s, span_s)
        ran_s = np.where(count > 0, np.minimum(left_s, span_s), 0.0)
        ended = left_s <= span_s
        # A job that ends in this span is set to all its steps, so that rounding leaves no work.
        self.done[rows] = np.where(ended, jobs.steps[rows], self.done[rows] + speed * np.maximum(ran_s - lost_s, 0.0))
        self.end_s[rows[ended]] = self.now_s + left_s[ended]
        self.held[rows] = np.where(ended, 0, count)
        self._count(rows, count, step, ran_s, span_s, done=not np.isnan(self.end_s).any())
        self.now_s += span_s
        self.stuck_s = 0.0 if count.any() or not len(rows) else self.stuck_s + span_s

    def _until_event(self, left_s: FloatArray, span_s: float) -> float:
        """Return the time to the next arrival, end of a job, or end of the period."""
        coming = self.jobs.submit_s[self.jobs.submit_s > self.now_s + ALMOST_S]
        arrives_s = float(coming[0]) - self.now_s if len(coming) else np.inf
        ends_s = float(left_s.min()) if len(left_s) else np.inf
        return max(min(span_s, arrives_s, ends_s), ALMOST_S)

    def _count(
        self, rows: IntArray, count: IntArray, step: IntArray, ran_s: FloatArray, span_s: float, *, done: bool
    ) -> None:
        """Add the energy of the jobs while they ran, and of idle GPUs, at most until the last job ends."""
        kwh = count * self.jobs.watts[rows, step] * ran_s * self.site.pue / JOULES_PER_KWH
        self.kwh[rows] += kwh
        self.grams[rows] += kwh * self.intensity
        self.spent_g += float(kwh.sum()) * self.intensity
        self.gpu_s[rows] += count * ran_s
        lasted_s = float(ran_s.max()) if done and len(rows) else span_s
        idle_s = self.site.gpus * lasted_s - float((count * np.minimum(ran_s, lasted_s)).sum())
        idle_kwh = idle_s * self.site.idle_w * self.site.pue / JOULES_PER_KWH
        self.idle_kwh += idle_kwh
        self.idle_g += idle_kwh * self.intensity

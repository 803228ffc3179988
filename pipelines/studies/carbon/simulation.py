"""Simulation of elastic jobs: a round in every period, progress at actual speeds, kWh and grams counted.

Plans are made by the arms, jobs in `jobs`. Called by `runs` and `months`.
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
"""If no job ran for this long although jobs waited, the budget is too small: the simulation ends with jobs left."""

ALMOST_S: Final = 1e-9
"""Remaining time of a period that counts as zero."""


class Planner(Protocol):
    """Makes a plan for one period: `allocate`, or a baseline."""

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
        """Return the plan of a period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster: equal GPUs, the power of an idle one, the intensity of the grid, and the budget.

    `intensity_g_per_kwh` gives the intensity of a period that begins at a moment (seconds since the simulation began),
    `allowance_g` the grams that may be emitted in it. With a `bank`, unused grams are kept for later periods and excess
    emissions are charged to them (ours).
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
    """Results per job: its end (J,; NaN if left), its kWh and grams (J,) while running, PUE included.

    `idle_kwh` is what GPUs without a job drew from the first submission to the last end. `changes` (J,) counts how
    often a running job got another number of GPUs or was put off. `over_budget` is the most that a period's true
    grams were above what was allowed, as a part of it; planned grams never are.
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
        """Return how many jobs had not ended when the simulation did."""
        return int(np.isnan(self.jct_s).sum())


def simulate(jobs: ArrivingJobs, site: Site, planner: Planner, *, as_requested: bool = False) -> Simulated:
    """Let jobs arrive, plan for those there at every period's begin, and run them; until all have ended.

    With `as_requested` every job is rigid at its request. With `site.at_events` a round is held whenever a job comes
    or ends too, with what is left of the period and its allowance. A job that gets another number of GPUs than it had,
    or comes back after it was put off, makes no progress for `restart_s`.

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
        """Advance to the next round; return False if none is left."""
        waiting = np.isnan(self.end_s)
        if not waiting.any() or self.stuck_s >= STUCK_S:
            return False
        if self.now_s >= self.period_ends_s - ALMOST_S:
            self._open_period()
        return True

    def round(self, planner: Planner, *, as_requested: bool) -> None:
        """Plan for the present jobs, and run them until the next round."""
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
        """Return what came of it."""
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
        """Bank what the last period left unused, and read the intensity and allowance of the next."""
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
        """Run the planned jobs to the next round, and count the energy of jobs and idle GPUs."""
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
        # Short of its end by no more than rounding, a job has ended; its last steps are not counted one by one.
        self.done[rows] = np.where(ended, jobs.steps[rows], self.done[rows] + speed * np.maximum(ran_s - lost_s, 0.0))
        self.end_s[rows[ended]] = self.now_s + left_s[ended]
        self.held[rows] = np.where(ended, 0, count)
        self._count(rows, count, step, ran_s, span_s, done=not np.isnan(self.end_s).any())
        self.now_s += span_s
        self.stuck_s = 0.0 if count.any() or not len(rows) else self.stuck_s + span_s

    def _until_event(self, left_s: FloatArray, span_s: float) -> float:
        """Return the time to the next arrival, end or period."""
        coming = self.jobs.submit_s[self.jobs.submit_s > self.now_s + ALMOST_S]
        arrives_s = float(coming[0]) - self.now_s if len(coming) else np.inf
        ends_s = float(left_s.min()) if len(left_s) else np.inf
        return max(min(span_s, arrives_s, ends_s), ALMOST_S)

    def _count(
        self, rows: IntArray, count: IntArray, step: IntArray, ran_s: FloatArray, span_s: float, *, done: bool
    ) -> None:
        """Count energy: of jobs as they ran; of idle GPUs until the last job's end."""
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

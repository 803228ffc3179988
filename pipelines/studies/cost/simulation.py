"""Simulation of jobs with due dates under one policy, which decides at arrivals, completions and every period."""

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.elastic import Choice, Progress, Span, run_elastic
from pipelines.studies.cost.arms import Asked, Policy
from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.problem import Decision, Nodes, Problem, WaitingJobs
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.types import FloatArray, IntArray

DAY_S: Final = 24 * HOUR_S
MOST_DECISIONS_A_JOB: Final = 2000
"""Maximum number of decisions per job; more mean that some job never ends."""

W_PER_KW: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJobs:
    """All J jobs of a run, sorted by submission; times are in seconds since the start of the run.

    `run_s` (J, K, 1 + most GPUs) is the predicted run time by node type and GPUs, NaN where impossible. The true run
    time is `off_by` (J,) times the predicted one. Decisions know the fraction of a job that is done, and so its true
    speed once it has run: the feedback of the profiler of ANDREAS, for jobs that report their progress.
    """

    submit_s: FloatArray
    due_s: FloatArray
    weight_usd_per_s: FloatArray
    run_s: FloatArray
    asked_gpus: IntArray
    off_by: FloatArray

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Scenario: nodes, hourly price (USD/kWh), and parameters of the decisions.

    `start_ts` is the Unix time at second 0 of the run. Nodes without jobs are switched off under every policy. A
    decision prices energy after its period at the mean price of the last day (ours).
    """

    nodes: Nodes
    price: HourlySeries
    start_ts: float
    pue: float = 1.0
    period_s: float = HOUR_S
    restart_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a run: ends of the jobs (J,), cost, and the cost that decisions had predicted.

    `foreseen_usd` is the cost if prices stayed constant from each decision to the next, and each job were as late as
    predicted by the last decision before its end.
    """

    finish_s: FloatArray
    tardiness_s: FloatArray
    tardiness_usd: float
    energy_usd: float
    foreseen_usd: float
    restarts: int
    spans: tuple[Span, ...]

    @property
    def total_usd(self) -> float:
        """Return the cost of tardiness and energy together."""
        return self.tardiness_usd + self.energy_usd


def simulate(jobs: SubmittedJobs, site: Site, policy: Policy, rng: np.random.Generator) -> Outcome:
    """Simulate all jobs until they end under one policy, which decides at arrivals, ends and at least every period.

    An interrupted restart begins again. Decisions assume that the rest of the old restart is added to the new one, so
    they overestimate the time by less than `site.restart_s`.
    """
    decisions = itertools.count()

    def decide(now_s: float, here: IntArray, state: Progress, last: Span | None) -> Choice:
        del last
        if next(decisions) >= MOST_DECISIONS_A_JOB * len(jobs):
            waiting = int(np.isnan(state.finish_s).sum())
            made = MOST_DECISIONS_A_JOB * len(jobs)
            raise BadInput(f"run: found {waiting} jobs unfinished after {made} decisions, expected all to end")
        decision = Decision.nothing(0)
        if len(here):
            problem = _problem(jobs, site, state, here, now_s)
            asked = Asked(submitted_s=jobs.submit_s[here], gpus=jobs.asked_gpus[here])
            decision = problem.check(policy(problem, asked, rng))
        until_s = now_s + site.period_s if len(here) else np.inf
        step = np.zeros(len(here), np.int64)
        return Choice(gpus=decision.gpus, step=step, place=decision.node, until_s=until_s, at_events=True)

    def true_s(rows: IntArray, choice: Choice) -> FloatArray:
        return jobs.run_s[rows, site.nodes.type_of[choice.place], choice.gpus] * jobs.off_by[rows]

    state, spans = run_elastic(jobs.submit_s, decide, true_s, restart_s=site.restart_s)
    return _outcome(jobs, site, state, tuple(span for span in spans if len(span.job)))


def _problem(jobs: SubmittedJobs, site: Site, state: Progress, here: IntArray, now_s: float) -> Problem:
    ts = site.start_ts + now_s
    learnt = np.where(state.left[here] < 1.0, jobs.off_by[here], 1.0)
    earliest = ts - DAY_S if site.price.wrap else max(ts - DAY_S, site.price.start_s)
    return Problem(
        jobs=WaitingJobs(
            due_s=jobs.due_s[here],
            weight_usd_per_s=jobs.weight_usd_per_s[here],
            run_s=jobs.run_s[here] * (state.left[here] * learnt)[:, None, None] + state.owed_s[here, None, None],
        ),
        nodes=site.nodes,
        now_s=now_s,
        usd_per_kwh=site.price.at(ts),
        pue=site.pue,
        period_s=site.period_s,
        later_usd_per_kwh=site.price.mean(earliest, ts),
        restart_s=site.restart_s,
        current=Decision(node=state.place[here].copy(), gpus=state.gpus[here].copy()),
    )


def _outcome(jobs: SubmittedJobs, site: Site, state: Progress, spans: tuple[Span, ...]) -> Outcome:
    from_s, until_s = (np.array([getattr(each, name) for each in spans]) for name in ("from_s", "until_s"))
    watts = np.array([_watts(site.nodes, each) for each in spans])
    hours_usd = np.asarray(site.price.integral(site.start_ts + from_s, site.start_ts + until_s)) * site.pue / W_PER_KW
    foreseen_usd = np.asarray(site.price.at(site.start_ts + from_s)) * (until_s - from_s) / HOUR_S * site.pue / W_PER_KW
    tardiness_s = np.maximum(state.finish_s - jobs.due_s, 0.0)
    foreseen_late_s = np.maximum(_foreseen_s(jobs, spans) - jobs.due_s, 0.0)
    return Outcome(
        finish_s=state.finish_s,
        tardiness_s=tardiness_s,
        tardiness_usd=float(jobs.weight_usd_per_s @ tardiness_s),
        energy_usd=float(watts @ hours_usd),
        foreseen_usd=float(watts @ foreseen_usd + jobs.weight_usd_per_s @ foreseen_late_s),
        restarts=int(state.changes.sum()),
        spans=spans,
    )


def _foreseen_s(jobs: SubmittedJobs, spans: tuple[Span, ...]) -> FloatArray:
    """Return the end of every job as predicted by the last decision before it (J,)."""
    ends_s, learnt = np.full(len(jobs), np.nan), np.zeros(len(jobs), np.bool_)
    for span in spans:
        # Later spans overwrite earlier ones, and in its last span a job does the rest of its work.
        work_s = span.ran_s - span.paused_s
        ends_s[span.job] = span.from_s + span.paused_s + work_s / np.where(learnt, 1.0, jobs.off_by)[span.job]
        learnt[span.job] |= work_s > 0.0
    return ends_s


def _watts(nodes: Nodes, span: Span) -> float:
    """Return the power in watts of switched-on nodes and their busy GPUs."""
    kinds = nodes.type_of[span.place]
    on = nodes.type_of[np.unique(span.place)]
    idle_w, active_w = (np.array([getattr(kind, name) for kind in nodes.types]) for name in ("idle_w", "gpu_active_w"))
    return float(idle_w[on].sum()) + float(active_w[kinds] @ span.gpus)

"""Simulation of jobs with due dates under one policy, which decides at arrivals, completions and every period.

Policies are look-ahead (ours), the greedy algorithm of ANDREAS, and simple queue orders.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.elastic import Choice, Progress, Span, run_elastic
from scheduler_core.errors import BadInput
from scheduler_core.planning.cost import POSTPONED, Decision, Nodes, Problem, WaitingJobs, greedy
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.lookahead import ITERATIONS, look_ahead
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requests of J jobs: submission times `submitted_s` and requested GPUs `gpus`."""

    submitted_s: FloatArray
    gpus: IntArray


Policy = Callable[[Problem, Asked, np.random.Generator], Decision]
"""Rule that returns node and GPUs of every job in the system until the next decision."""

ORDERS: Final[dict[str, Callable[[Problem, Asked], FloatArray]]] = {
    "fifo": lambda _, asked: asked.submitted_s,
    "edf": lambda problem, _: problem.jobs.due_s,
    "priority": lambda problem, _: -problem.jobs.weight_usd_per_s,
}
"""Sort keys of the queue orders by name; the job with the smallest key is first, ties by submission, then by index."""

FIXED, FASTEST = "fixed", "fastest"
CONFIGURATIONS: Final = (FIXED, FASTEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Simple policy: a queue order, and a rule for the configuration (node type and GPUs) of each job.

    With the rule `fixed`, a job gets its requested GPUs on the fastest node type that has enough free GPUs. With
    `fastest`, it gets the fastest of all configurations that fit. A job that does not fit is passed over and blocks no
    other job. Running jobs stay as they are, as in the comparisons of ANDREAS, unless `preemptive` (ours) is set: then
    all jobs are placed anew at each decision. Jobs share nodes, fullest node first. In ANDREAS these methods use a new
    node for each job, which costs more.

    References
    ----------
    ANDREAS (arXiv 2105.05080): FIFO, EDF and priority as first-principle methods.
    """

    order: str
    configuration: str
    preemptive: bool = False

    def __call__(self, problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG002 -- see Policy
        """Return node and GPUs of every job until the next decision; `rng` is not used."""
        standing = Decision.nothing(len(problem.jobs))
        if problem.current is not None and not self.preemptive:
            standing = problem.current
        node, gpus, free = standing.node.copy(), standing.gpus.copy(), problem.nodes.gpus
        np.subtract.at(free, node[node != POSTPONED], gpus[node != POSTPONED])
        keys = (asked.submitted_s, ORDERS[self.order](problem, asked))
        for job in np.lexsort(keys).tolist():
            if not free.any():
                break
            if node[job] == POSTPONED:
                counts = asked.gpus[job : job + 1] if self.configuration == FIXED else None
                node[job], gpus[job] = _placed(problem, problem.jobs.run_s[job], counts, free)
        return Decision(node=node, gpus=gpus)


def _placed(problem: Problem, run_s: FloatArray, counts: IntArray | None, free: IntArray) -> tuple[int, int]:
    """Return node and GPUs of the fastest configuration that fits, and subtract its GPUs from `free`.

    In a tie the fewest GPUs are taken. Of the nodes that fit, the fullest is taken, so that few nodes are switched on.
    """
    allowed = run_s if counts is None else run_s[:, counts]
    for place in np.argsort(allowed, axis=None, kind="stable").tolist():
        kind, column = divmod(place, allowed.shape[1])
        if np.isnan(allowed[kind, column]):
            break  # NaN is sorted last
        count = column if counts is None else int(counts[column])
        room = np.flatnonzero((problem.nodes.type_of == kind) & (free >= count))
        if len(room):
            node = int(room[np.argmin(free[room])])
            free[node] -= count
            return node, count
    return POSTPONED, 0


def looks_ahead(problem: Problem, asked: Asked, rng: np.random.Generator, *, iterations: int = ITERATIONS) -> Decision:  # noqa: ARG001 -- see Policy
    """Decide by looking ahead (ours) with so many random plans."""
    return look_ahead(problem, rng, iterations)


def decided_greedily(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG001 -- see Policy
    """Decide by the deterministic greedy algorithm of ANDREAS."""
    return greedy(problem)


AHEAD, GREEDY = "looking ahead", "greedy"
STRONGEST: Final = f"edf, {FASTEST}, preemptive"
"""Name of the simple policy that is hardest to beat."""

BASELINES: Final = {
    f"{order}, {configuration}": Baseline(order=order, configuration=configuration)
    for order in ORDERS
    for configuration in CONFIGURATIONS
}
"""The first-principle methods of ANDREAS by name."""

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
    """Result of a run: ends of the jobs (J,), and cost."""

    finish_s: FloatArray
    tardiness_usd: float
    energy_usd: float
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
            decision = policy(problem, asked, rng)
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
    tardiness_s = np.maximum(state.finish_s - jobs.due_s, 0.0)
    return Outcome(
        finish_s=state.finish_s,
        tardiness_usd=float(jobs.weight_usd_per_s @ tardiness_s),
        energy_usd=float(watts @ hours_usd),
        restarts=int(state.changes.sum()),
        spans=spans,
    )


def _watts(nodes: Nodes, span: Span) -> float:
    """Return the power in watts of switched-on nodes and their busy GPUs."""
    kinds = nodes.type_of[span.place]
    on = nodes.type_of[np.unique(span.place)]
    idle_w, active_w = (np.array([getattr(kind, name) for kind in nodes.types]) for name in ("idle_w", "gpu_active_w"))
    return float(idle_w[on].sum()) + float(active_w[kinds] @ span.gpus)

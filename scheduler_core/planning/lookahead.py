"""Decisions by the cost until all present jobs end (ours); in ANDREAS the cost ends at the next decision."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

import numpy as np

from scheduler_core.planning.cost import POSTPONED, Decision, Problem
from scheduler_core.planning.hourly import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["ITERATIONS", "look_ahead"]

ITERATIONS: Final = 20
"""Default number of randomly changed plans per decision, in addition to the plans made by rules."""

ELITE: Final = 5
STEPS: Final = (0.25, 0.5, 0.75)
"""Fractions of the way from the best plan (0) to another elite plan (1) at which new plans are made."""

CHANGED: Final = 0.1
"""Probability that a random change draws a new GPU limit for a job, and that it flips the job's `thrifty`."""

_LOOKS_FORWARD: Final = (0.5, 2.0)
"""Look-ahead parameters of the apparent tardiness cost rule, as multiples of the mean shortest run time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """A plan of J jobs, its cost until all jobs end, and the decision that it implies for now.

    `order` (J,) is the order in which jobs are placed, `most_gpus` (J,) the maximum number of GPUs of each job.
    `thrifty` (J,) marks jobs that take the cheapest configuration that meets their due date; the others take the
    fastest.
    """

    order: IntArray
    most_gpus: IntArray
    thrifty: BoolArray
    usd: float
    decision: Decision


_Run = Callable[[IntArray, IntArray, BoolArray], _Plan]
_USD: Final = attrgetter("usd")


def look_ahead(problem: Problem, rng: np.random.Generator, iterations: int = ITERATIONS) -> Decision:
    """Return the node and GPUs of every job until the next decision, by the cheapest plan simulated to the end.

    A plan is an order of jobs with a limit on each job's GPUs. It is simulated with predicted run times and without
    further arrivals; all jobs are placed again at each completion. Its cost is all tardiness and energy until the last
    completion. The search tries three kinds of plans in turn: jobs sorted by rules (urgency, due date, weight divided
    by work, apparent tardiness cost; each with several GPU limits), random changes of the best plans, and plans between
    two of the best.

    References
    ----------
    ANDREAS (arXiv 2105.05080): random greedy plans with elites; apparent tardiness cost: Vepsalainen and Morton,
    Priority rules for job shops with weighted tardiness costs (1987). Simulating plans to their end is ours.
    """
    if not len(problem.jobs) or not len(problem.nodes.type_of):
        return Decision.nothing(len(problem.jobs))
    data = _Ahead.of(problem)
    run, most = partial(_run, data), max(data.gpus)
    elite = sorted((run(*rule) for rule in _rules(problem, most)), key=_USD)[:ELITE]
    for _ in range(iterations):
        plan = elite[int(rng.integers(len(elite)))]
        elite = _kept(elite, _changed(run, problem.jobs.weight_usd_per_s, plan, most, rng))
    for other in elite[1:]:
        for step in STEPS:
            elite = _kept(elite, _between(run, elite[0], other, step, rng))
    return elite[0].decision


def _kept(elite: list[_Plan], plan: _Plan) -> list[_Plan]:
    return sorted([*elite, plan], key=_USD)[:ELITE]


Configurations = list[list[tuple[int, int]]]
"""For each job pairs of a node type and a number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """The constants of a problem as lists, which plain loops read fastest.

    `fast` and `cheap` are the possible configurations of each job, sorted by run time and by cost. `least_gpus` are the
    fewest GPUs with which a job can run; a lower GPU limit is raised to it. `kind` and `gpus` are of each node.
    `now_usd` and `later_usd` are the prices per joule until the end of the period and after it.
    """

    problem: Problem
    run_s: list[list[list[float]]]
    slack_s: list[float]
    weight: list[float]
    fast: Configurations
    cheap: Configurations
    least_gpus: list[int]
    kind: list[int]
    gpus: list[int]
    now_usd: float
    later_usd: float

    @classmethod
    def of(cls, problem: Problem) -> "_Ahead":
        run_s = problem.possible_run_s()
        jobs, _, counts = run_s.shape
        flat = run_s.reshape(jobs, -1)
        possible = np.isfinite(flat)
        usd = problem.run_usd(np.where(np.isfinite(run_s), run_s, 0.0)).reshape(jobs, -1)
        many = possible.sum(axis=1).tolist()

        def sorted_by(*keys: FloatArray | BoolArray) -> Configurations:
            rows = zip(np.lexsort(keys, axis=1).tolist(), many, strict=True)
            return [[divmod(option, counts) for option in row[:end]] for row, end in rows]

        later = problem.usd_per_kwh if problem.later_usd_per_kwh is None else problem.later_usd_per_kwh
        return cls(
            problem=problem,
            run_s=run_s.tolist(),
            slack_s=problem.slack_s.tolist(),
            weight=problem.jobs.weight_usd_per_s.tolist(),
            fast=sorted_by(flat),
            cheap=sorted_by(flat, usd, ~possible),
            least_gpus=np.isfinite(run_s).any(axis=1).argmax(axis=1).tolist(),
            kind=problem.nodes.type_of.tolist(),
            gpus=problem.nodes.gpus.tolist(),
            now_usd=problem.usd_per_kwh * problem.pue / JOULES_PER_KWH,
            later_usd=later * problem.pue / JOULES_PER_KWH,
        )


@dataclass(slots=True, kw_only=True)
class _Job:
    """A job of a simulated plan: the fraction `left` of its work, and the remaining time of a restart."""

    left: float = 1.0
    owed_s: float = 0.0
    node: int
    gpus: int


def _run(data: _Ahead, order: IntArray, most_gpus: IntArray, thrifty: BoolArray) -> _Plan:
    """Simulate a plan until all jobs end: they are placed in order, and again at each completion.

    Jobs that no node can run cost nothing.
    """
    standing, period_s = data.problem.standing, data.problem.period_s
    runs = zip(standing.node.tolist(), standing.gpus.tolist(), strict=True)
    jobs = [_Job(node=node, gpus=gpus) for node, gpus in runs]
    limits, spares = most_gpus.tolist(), thrifty.tolist()
    ts_s, usd, first = 0.0, 0.0, None
    while True:
        watts = _place(data, jobs, order.tolist(), limits, spares, ts_s)
        if first is None:
            node, gpus = (np.array([getattr(job, name) for job in jobs], np.int64) for name in ("node", "gpus"))
            first = Decision(node=node, gpus=gpus)
        whole_s = {
            at: data.run_s[at][data.kind[job.node]][job.gpus] for at, job in enumerate(jobs) if job.node != POSTPONED
        }
        step_s = min((jobs[at].owed_s + jobs[at].left * run_s for at, run_s in whole_s.items()), default=math.inf)
        if step_s == math.inf:
            return _Plan(order=order, most_gpus=most_gpus, thrifty=thrifty, usd=usd, decision=first)
        soon_s = min(max(period_s - ts_s, 0.0), step_s)
        usd += watts * (soon_s * data.now_usd + (step_s - soon_s) * data.later_usd)
        ts_s += step_s
        for at, run_s in whole_s.items():
            job = jobs[at]
            if job.owed_s + job.left * run_s <= step_s * (1.0 + 1e-12):
                job.left = 0.0
                usd += data.weight[at] * max(ts_s - data.slack_s[at], 0.0)
            else:
                paused_s = min(job.owed_s, step_s)
                job.owed_s -= paused_s
                job.left -= (step_s - paused_s) / run_s


def _place(
    data: _Ahead, jobs: list[_Job], order: list[int], most_gpus: list[int], thrifty: list[bool], ts_s: float
) -> float:
    """Place all unfinished jobs in order; return the power in watts of all nodes with jobs and of their busy GPUs.

    A thrifty job takes the cheapest configuration that meets its due date, any other job the fastest one.
    """
    free, kinds = data.gpus.copy(), data.problem.nodes.types
    most = [_most_free(data, free, kind) for kind in range(len(kinds))]
    for at in order:
        job, was, had = jobs[at], jobs[at].node, jobs[at].gpus
        job.node, job.gpus = POSTPONED, 0
        if job.left <= 0.0:
            continue
        bound = max(most_gpus[at], data.least_gpus[at])
        in_time = (
            (kind, gpus)
            for kind, gpus in (data.cheap[at] if thrifty[at] else ())
            if ts_s + (job.left * data.run_s[at][kind][gpus] + job.owed_s) <= data.slack_s[at]
        )
        for options in (in_time, data.fast[at]):
            chosen = next(((kind, gpus) for kind, gpus in options if gpus <= bound and gpus <= most[kind]), None)
            if chosen is not None:
                kind, job.gpus = chosen
                job.node = _node(data, free, kind, job.gpus, was if had == job.gpus else POSTPONED)
                free[job.node] -= job.gpus
                most[kind] = _most_free(data, free, kind)
                break
        if was != POSTPONED and (job.node, job.gpus) != (was, had):
            job.owed_s = data.problem.restart_s
    used = [(kinds[data.kind[node]], data.gpus[node] - left) for node, left in enumerate(free)]
    return sum((kind.idle_w + busy * kind.gpu_active_w for kind, busy in used if busy), 0.0)


def _most_free(data: _Ahead, free: list[int], kind: int) -> int:
    return max((has for has, own in zip(free, data.kind, strict=True) if own == kind), default=0)


def _node(data: _Ahead, free: list[int], kind: int, gpus: int, stay: int) -> int:
    """Return the node for a job: `stay` if that saves a restart, else by best fit; one of the type has room."""
    if stay != POSTPONED and data.kind[stay] == kind and free[stay] >= gpus:
        return stay
    return min((node for node, has in enumerate(free) if data.kind[node] == kind and has >= gpus), key=free.__getitem__)


def _rules(problem: Problem, most: int) -> Iterator[tuple[IntArray, IntArray, BoolArray]]:
    """Yield the plans made by rules: each order with each power of two as GPU limit, all jobs thrifty or none."""
    jobs = len(problem.jobs)
    bounds = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    for order in _orders(problem):
        for bound in bounds:
            for thrifty in (False, True):
                yield order, np.full(jobs, bound, np.int64), np.full(jobs, thrifty)


def _orders(problem: Problem) -> Iterator[IntArray]:
    run_s, weight = problem.possible_run_s(), problem.jobs.weight_usd_per_s
    possible, fastest = np.isfinite(run_s), run_s.min(axis=(1, 2))
    gpu_s = np.where(possible, run_s, 0.0) * np.arange(run_s.shape[2])
    work = np.where(possible, gpu_s, np.inf).min(axis=(1, 2))
    known = np.isfinite(fastest)
    fastest, work = np.where(known, fastest, 1.0), np.where(known, work, 1.0)
    spare_s = problem.slack_s - fastest
    for key in (spare_s, problem.slack_s, -weight / work):
        yield np.argsort(key, kind="stable")
    for forward in _LOOKS_FORWARD:
        soon = np.exp(-np.maximum(spare_s, 0.0) / (forward * float(fastest.mean())))
        yield np.argsort(-weight / work * soon, kind="stable")


def _changed(run: _Run, weight: FloatArray, plan: _Plan, most: int, rng: np.random.Generator) -> _Plan:
    """Return a randomly changed plan; neighbours swap more likely if the second job has a high weight."""
    order, jobs = plan.order.copy(), len(plan.order)
    for place in np.flatnonzero(rng.random(max(jobs - 1, 0)) < _swap_chance(weight[order])).tolist():
        order[place], order[place + 1] = order[place + 1], order[place]
    bounds = np.minimum(2 ** rng.integers(0, most.bit_length() + 1, jobs), most)
    most_gpus = np.where(rng.random(jobs) < CHANGED, bounds, plan.most_gpus)
    thrifty = plan.thrifty ^ (rng.random(jobs) < CHANGED)
    return run(order, most_gpus, thrifty)


def _swap_chance(weight: FloatArray) -> FloatArray:
    both = weight[:-1] + weight[1:]
    return np.asarray(0.5 * np.where(both > 0.0, weight[1:] / np.where(both > 0.0, both, 1.0), 0.5))


def _between(run: _Run, plan: _Plan, other: _Plan, step: float, rng: np.random.Generator) -> _Plan:
    """Return a plan between two plans, at the fraction `step` of the way from `plan` to `other`.

    Ranks are interpolated; GPU limit and `thrifty` of each job are taken from `other` with probability `step`.
    """
    ranks = [np.argsort(each.order, kind="stable") for each in (plan, other)]
    order = np.argsort((1.0 - step) * ranks[0] + step * ranks[1], kind="stable")
    theirs = rng.random(len(order)) < step
    most_gpus = np.where(theirs, other.most_gpus, plan.most_gpus)
    return run(order, most_gpus, np.where(theirs, other.thrifty, plan.thrifty))

"""Decisions by the cost until all present jobs end, not only until the next decision as in ANDREAS (ours)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

import numpy as np

from scheduler_core.kernels.lookahead import Ahead, Running, room_for, run_out
from scheduler_core.planning.cost.problem import Decision, Problem
from scheduler_core.planning.power import JOULES_PER_KWH
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
    data = _ahead(problem)
    run = partial(_run, data, room_for(len(data.weight), len(data.kind), len(problem.nodes.types)))
    most = int(data.room.max())
    elite = sorted((run(*rule) for rule in _rules(data, most)), key=_USD)[:ELITE]
    for _ in range(iterations):
        elite = _kept(elite, _changed(run, data.weight, elite[int(rng.integers(len(elite)))], most, rng))
    for other in elite[1:]:
        for step in STEPS:
            elite = _kept(elite, _between(run, elite[0], other, step, rng))
    return elite[0].decision


def _kept(elite: list[_Plan], plan: _Plan) -> list[_Plan]:
    return sorted([*elite, plan], key=_USD)[:ELITE]


def _ahead(problem: Problem) -> Ahead:
    run_s, standing = problem.possible_run_s(), problem.standing
    jobs, _, counts = run_s.shape
    flat = run_s.reshape(jobs, -1)
    possible = np.isfinite(flat)
    usd = problem.run_usd(np.where(np.isfinite(run_s), run_s, 0.0)).reshape(jobs, -1)
    fast = np.argsort(flat, axis=1, kind="stable")
    cheap = np.lexsort((flat, np.where(possible, usd, np.inf), ~possible), axis=1)
    later = problem.usd_per_kwh if problem.later_usd_per_kwh is None else problem.later_usd_per_kwh
    return Ahead(
        run_s=run_s,
        slack_s=problem.slack_s,
        weight=problem.jobs.weight_usd_per_s,
        fast_kind=fast // counts,
        fast_gpus=fast % counts,
        cheap_kind=cheap // counts,
        cheap_gpus=cheap % counts,
        options=possible.sum(axis=1),
        least_gpus=np.isfinite(run_s).any(axis=1).argmax(axis=1),
        stay_node=standing.node,
        stay_gpus=standing.gpus,
        restart_s=float(problem.restart_s),
        kind=np.ascontiguousarray(problem.nodes.type_of, np.int64),
        room=problem.nodes.gpus,
        idle_w=np.array([kind.idle_w for kind in problem.nodes.types], np.float64),
        active_w=np.array([kind.gpu_active_w for kind in problem.nodes.types], np.float64),
        now_usd=problem.usd_per_kwh * problem.pue / JOULES_PER_KWH,
        later_usd=later * problem.pue / JOULES_PER_KWH,
        period_s=float(problem.period_s),
    )


def _rules(data: Ahead, most: int) -> Iterator[tuple[IntArray, IntArray, BoolArray]]:
    """Yield the plans made by rules: each order with each power of two as GPU limit, all jobs thrifty or none."""
    jobs = len(data.weight)
    bounds = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    for order in _orders(data):
        for bound in bounds:
            for thrifty in (False, True):
                yield order, np.full(jobs, bound, np.int64), np.full(jobs, thrifty)


def _orders(data: Ahead) -> Iterator[IntArray]:
    counts = np.arange(data.run_s.shape[2])
    possible = np.isfinite(data.run_s)
    fastest = data.run_s.min(axis=(1, 2))
    work = np.where(possible, np.where(possible, data.run_s, 0.0) * counts, np.inf).min(axis=(1, 2))
    known = np.isfinite(fastest)
    fastest, work = np.where(known, fastest, 1.0), np.where(known, work, 1.0)
    spare_s = data.slack_s - fastest
    for key in (spare_s, data.slack_s, -data.weight / work):
        yield np.argsort(key, kind="stable")
    for forward in _LOOKS_FORWARD:
        soon = np.exp(-np.maximum(spare_s, 0.0) / (forward * float(fastest.mean())))
        yield np.argsort(-data.weight / work * soon, kind="stable")


def _run(data: Ahead, now: Running, order: IntArray, most_gpus: IntArray, thrifty: BoolArray) -> _Plan:
    decision = Decision.nothing(len(order))
    usd = run_out(data, now, order, most_gpus, thrifty, decision.node, decision.gpus)
    return _Plan(order=order, most_gpus=most_gpus, thrifty=thrifty, usd=float(usd), decision=decision)


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

"""The policies that are held beside each other: ours, the source's decisions, its greedy, and first principles.

How they decide is `scheduler_core.planning.cost`'s. Called by `pipelines.studies.cost.runs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipelines.studies.cost.baselines import BASELINES, CONFIGURATIONS, FIXED, ORDERS, Asked, Baseline, Policy
from scheduler_core.planning.cost.decision import decide
from scheduler_core.planning.cost.greedy import greedy
from scheduler_core.planning.cost.lookahead import ITERATIONS, look_ahead
from scheduler_core.planning.cost.problem import Decision, Problem

AHEAD, RELINKED, GREEDY = "looking ahead", "randomised + relinking", "greedy"
"""Plans judged to the end of all jobs there are (ours); by the source's objective; its greedy without chance."""

PREEMPTIVE: Final = ", preemptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksAhead:
    """Ours; it plans with weights of tardiness `weight_factor` times the true ones."""

    iterations: int = ITERATIONS
    weight_factor: float = 1.0

    def __call__(self, problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG002 -- see Policy
        """Return where every job runs until the next decision."""
        weights = problem.jobs.weight_usd_per_s * self.weight_factor
        return look_ahead(replace(problem, jobs=replace(problem.jobs, weight_usd_per_s=weights)), rng, self.iterations)


def relinked(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG001 -- see Policy
    """Return what random plans and relinking decide by the source's objective."""
    return decide(problem, rng)


def decided_greedily(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG001 -- see Policy
    """Return what the greedy without chance decides."""
    return greedy(problem)


def first_principle() -> tuple[str, ...]:
    """Return the names of the six methods that costs are judged against."""
    return tuple(BASELINES)


def as_asked(name: str) -> bool:
    """Return whether a policy gives every job the GPUs it asks for, and no others."""
    return f", {FIXED}" in name


def preemptive() -> Mapping[str, Policy]:
    """Return the same methods placing everybody anew at each decision, by name."""
    return {
        f"{order}, {configuration}{PREEMPTIVE}": Baseline(order=order, configuration=configuration, preemptive=True)
        for order in ORDERS
        for configuration in CONFIGURATIONS
    }


def policies(iterations: int = ITERATIONS, weight_factor: float = 1.0) -> Mapping[str, Policy]:
    """Return every policy by its name."""
    ahead = LooksAhead(iterations=iterations, weight_factor=weight_factor)
    return {AHEAD: ahead, RELINKED: relinked, GREEDY: decided_greedily, **BASELINES, **preemptive()}

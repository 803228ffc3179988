"""The policies that are compared: looking ahead (ours), the source's search, its greedy, and simple queue orders.

Searches are in `scheduler_core.planning.cost`. Called by `runs`, `settings`, `tables` and `charts`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.decision import decide
from scheduler_core.planning.cost.greedy import greedy
from scheduler_core.planning.cost.lookahead import ITERATIONS, look_ahead
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requests of J jobs: submission time `submitted_s` and requested GPUs `gpus`."""

    submitted_s: FloatArray
    gpus: IntArray


class Policy(Protocol):
    """Take one decision for all jobs in the system."""

    def __call__(self, problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
        """Return where every job runs until the next decision."""
        ...


Order = Callable[[Problem, Asked], FloatArray]


def fifo(problem: Problem, asked: Asked) -> FloatArray:  # noqa: ARG001 -- all orders have one signature
    """Return the sort key of first come, first served: the submission time."""
    return asked.submitted_s


def earliest_due(problem: Problem, asked: Asked) -> FloatArray:  # noqa: ARG001 -- all orders have one signature
    """Return the sort key of the earliest due date first."""
    return problem.jobs.due_s


def priority(problem: Problem, asked: Asked) -> FloatArray:  # noqa: ARG001 -- all orders have one signature
    """Return the sort key of the highest tardiness weight first."""
    return -problem.jobs.weight_usd_per_s


ORDERS: Final[dict[str, Order]] = {"fifo": fifo, "edf": earliest_due, "priority": priority}
"""By name; the smallest key is served first, ties by submission and then by place."""

FIXED, FASTEST = "fixed", "fastest"
CONFIGURATIONS: Final = (FIXED, FASTEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An order and a configuration by name.

    `fixed` gives a job its requested count, on the node type where that is fastest and there is room; `fastest` the
    fastest of all configurations there is room for. A job with no room is passed over, so no job waits behind it.
    Without `preemptive` running jobs stay as they are, as in the source's own comparisons; with it (ours) everybody
    is placed anew at each decision. Both share nodes, fullest first, where the source's methods open a node for each
    job: that is kinder to them.

    References
    ----------
    ANDREAS (arXiv 2105.05080): FIFO, EDF and priority as first-principle methods.

    Raises
    ------
    BadInput
        If the order or the configuration is unknown.
    """

    order: str
    configuration: str
    preemptive: bool = False

    def __post_init__(self) -> None:
        for value, known in ((self.order, tuple(ORDERS)), (self.configuration, CONFIGURATIONS)):
            if value not in known:
                raise BadInput(f"baseline: found {value!r}, expected one of {', '.join(known)}")

    def __call__(self, problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG002 -- see Policy
        """Return where every job runs until the next decision; nothing is random."""
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
    """Return the node and the count of the fastest configuration with room, and take its GPUs from `free`.

    Equally fast ones: the fewest GPUs. Of the nodes with room the fullest, so that few are switched on.
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


BASELINES: Final[dict[str, Policy]] = {
    f"{order}, {configuration}": Baseline(order=order, configuration=configuration)
    for order in ORDERS
    for configuration in CONFIGURATIONS
}
"""By name; none preempts."""


AHEAD, RELINKED, GREEDY = "looking ahead", "randomised + relinking", "greedy"
"""Plans scored to the end of all present jobs (ours); by the source's objective; its greedy without randomness."""

PREEMPTIVE: Final = ", preemptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksAhead:
    """Policy that looks ahead (ours); it plans with tardiness weights `weight_factor` times the actual ones."""

    iterations: int = ITERATIONS
    weight_factor: float = 1.0

    def __call__(self, problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG002 -- see Policy
        """Return where every job runs until the next decision."""
        weights = problem.jobs.weight_usd_per_s * self.weight_factor
        return look_ahead(replace(problem, jobs=replace(problem.jobs, weight_usd_per_s=weights)), rng, self.iterations)


def relinked(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG001 -- see Policy
    """Return the decision of random plans and path relinking, by the source's objective."""
    return decide(problem, rng)


def decided_greedily(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:  # noqa: ARG001 -- see Policy
    """Return the decision of the deterministic greedy."""
    return greedy(problem)


def first_principle() -> tuple[str, ...]:
    """Return the names of the six simple methods that costs are compared with."""
    return tuple(BASELINES)


def as_asked(name: str) -> bool:
    """Return whether a policy always gives a job exactly its requested GPUs."""
    return f", {FIXED}" in name


def preemptive() -> Mapping[str, Policy]:
    """Return the simple methods with preemption, by name: all jobs are placed again at each decision."""
    return {
        f"{order}, {configuration}{PREEMPTIVE}": Baseline(order=order, configuration=configuration, preemptive=True)
        for order in ORDERS
        for configuration in CONFIGURATIONS
    }


def policies(iterations: int = ITERATIONS, weight_factor: float = 1.0) -> Mapping[str, Policy]:
    """Return every policy by its name."""
    ahead = LooksAhead(iterations=iterations, weight_factor=weight_factor)
    return {AHEAD: ahead, RELINKED: relinked, GREEDY: decided_greedily, **BASELINES, **preemptive()}

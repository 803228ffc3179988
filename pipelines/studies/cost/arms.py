"""Policies compared in the cost study: look-ahead (ours), the greedy algorithm of ANDREAS, and simple queue orders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.planning.cost.greedy import greedy
from scheduler_core.planning.cost.lookahead import ITERATIONS, look_ahead
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
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
PREEMPTIVE: Final = ", preemptive"
STRONGEST: Final = f"edf, {FASTEST}{PREEMPTIVE}"
"""Name of the simple policy that is hardest to beat."""

BASELINES, PREEMPTING = (
    {
        f"{order}, {configuration}{PREEMPTIVE * preempts}": Baseline(
            order=order, configuration=configuration, preemptive=preempts
        )
        for order in ORDERS
        for configuration in CONFIGURATIONS
    }
    for preempts in (False, True)
)
"""The simple policies by name: without preemption, and with it (they place all jobs again at each decision)."""


def as_asked(name: str) -> bool:
    """Return whether a policy always gives a job exactly its requested GPUs."""
    return f", {FIXED}" in name

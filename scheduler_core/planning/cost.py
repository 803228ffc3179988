"""Decisions by cost: jobs with due dates, nodes of several types, electricity prices; the greedy rule of ANDREAS."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.planning.hourly import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["POSTPONED", "Decision", "NodeType", "Nodes", "Problem", "WaitingJobs", "greedy"]

POSTPONED: Final = -1
"""Node index of a job that does not run before the next decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """A node type: its GPUs, its power when switched on with idle GPUs, and the power a busy GPU adds, in watts."""

    name: str
    gpu_type: str
    gpus: int
    idle_w: float
    gpu_active_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """M nodes: `type_of` (M,) is the index of each node's type in `types` (K types)."""

    types: tuple[NodeType, ...]
    type_of: IntArray

    @property
    def gpus(self) -> IntArray:
        """Return the number of GPUs of every node (M,)."""
        return np.array([kind.gpus for kind in self.types], np.int64)[self.type_of]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJobs:
    """All J jobs in the system, waiting or running; every decision covers all of them.

    `due_s` (J,) is the due date on the clock of `Problem.now_s`, +inf for none. `weight_usd_per_s` (J,) is the cost of
    a second of tardiness. `run_s` (J, K, 1 + most GPUs) is the remaining run time by node type and number of GPUs, NaN
    where impossible (always with 0 GPUs).
    """

    due_s: FloatArray
    weight_usd_per_s: FloatArray
    run_s: FloatArray

    def __len__(self) -> int:
        return len(self.due_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Each job's `node` (J,), or `POSTPONED`, and number of `gpus` (J,), 0 if postponed, until the next decision."""

    node: IntArray
    gpus: IntArray

    @classmethod
    def nothing(cls, jobs: int) -> "Decision":
        """Return the decision that postpones every job."""
        return cls(node=np.full(jobs, POSTPONED, np.int64), gpus=np.zeros(jobs, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Input of one decision.

    `period_s` is the maximum time to the next decision. `usd_per_kwh` is the price until the next decision; it may be
    negative, and is multiplied by `pue`. `later_usd_per_kwh` is the price after it, by default the same. `current` is
    the decision in force: a running job that is stopped, moved or given another number of GPUs needs `restart_s` more
    run time.
    """

    jobs: WaitingJobs
    nodes: Nodes
    now_s: float
    usd_per_kwh: float
    pue: float = 1.0
    period_s: float = 3600.0
    later_usd_per_kwh: float | None = None
    restart_s: float = 0.0
    current: Decision | None = None

    @property
    def slack_s(self) -> FloatArray:
        """Return the time from now to each job's due date (J,)."""
        return self.jobs.due_s - self.now_s

    @property
    def standing(self) -> Decision:
        """Return the decision in force; without one, all jobs wait."""
        return self.current or Decision.nothing(len(self.jobs))

    def possible_run_s(self) -> FloatArray:
        """Return the run times, +inf where the node type has too few GPUs or no node has that type."""
        gpus = np.array([kind.gpus for kind in self.nodes.types], np.int64)
        counts = np.arange(self.jobs.run_s.shape[2])
        present = np.bincount(self.nodes.type_of, minlength=len(gpus)) > 0
        possible = (counts >= 1) & (counts <= gpus[:, None]) & present[:, None]
        return np.where(possible & ~np.isnan(self.jobs.run_s), self.jobs.run_s, np.inf)

    def run_usd(self, run_s: FloatArray) -> FloatArray:
        """Return the energy cost of whole runs in USD (J, K, 1 + most GPUs), at the later price.

        Each GPU is charged its share of the idle power of a full node.
        """
        price = self.usd_per_kwh if self.later_usd_per_kwh is None else self.later_usd_per_kwh
        watts = np.array([kind.gpu_active_w + kind.idle_w / kind.gpus for kind in self.nodes.types], np.float64)
        usd: FloatArray = run_s * (watts[:, None] * np.arange(run_s.shape[2]) * (price * self.pue / JOULES_PER_KWH))
        return usd


def by_pressure(problem: Problem, run_s: FloatArray) -> IntArray:
    """Return the job indices, most urgent first; weight and run time break ties.

    Urgency is now + shortest remaining run time - due date; -inf without due date or configuration.
    """
    fastest = run_s.min(axis=(1, 2), initial=np.inf)
    pressure_s = np.where(np.isfinite(fastest), fastest, -np.inf) - problem.slack_s
    return np.lexsort((fastest, -problem.jobs.weight_usd_per_s, -pressure_s))


def greedy(problem: Problem) -> Decision:
    """Decide by the deterministic greedy algorithm of ANDREAS.

    Jobs choose in order of urgency: of the configurations (node type and number of GPUs) that meet the due date by
    cost, then of the others by run time, the first that fits. It goes to the job's current node if the job runs there
    in that configuration, else to a node already switched on (best fit), else to a node to be switched on. If none
    fits, the job is postponed.

    References
    ----------
    ANDREAS (arXiv 2105.05080); the order of a job's configurations after the first is ours.
    """
    run_s = problem.possible_run_s()
    jobs, kinds, counts = run_s.shape
    possible = np.isfinite(run_s).reshape(jobs, kinds * counts)
    usd = problem.run_usd(np.where(np.isfinite(run_s), run_s, 0.0)).reshape(jobs, kinds * counts)
    flat_s = run_s.reshape(jobs, kinds * counts)
    late = flat_s > problem.slack_s[:, None]
    order = np.lexsort((usd, np.where(late, flat_s, usd), late, ~possible), axis=1)
    free, on = problem.nodes.gpus, np.zeros(len(problem.nodes.type_of), np.bool_)
    decision = Decision.nothing(jobs)
    for job in by_pressure(problem, run_s):
        for option in order[job, : possible[job].sum()]:
            kind, gpus = divmod(int(option), counts)
            node = _fitting(problem, job, kind, gpus, free, on)
            if node != POSTPONED:
                decision.node[job], decision.gpus[job] = node, gpus
                free[node] -= gpus
                on[node] = True
                break
    return decision


def _fitting(problem: Problem, job: int, kind: int, gpus: int, free: IntArray, on: BoolArray) -> int:
    """Return the node for a configuration, or `POSTPONED` if no node has enough free GPUs."""
    fits = (problem.nodes.type_of == kind) & (free >= gpus)
    stay = int(problem.standing.node[job])
    if stay != POSTPONED and problem.standing.gpus[job] == gpus and fits[stay]:
        return stay
    if (fits & on).any():
        return int(np.argmin(np.where(fits & on, free, np.iinfo(np.int64).max)))
    return int(np.argmax(fits)) if fits.any() else POSTPONED

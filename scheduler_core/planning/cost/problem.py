"""Input of one decision: jobs with due dates, nodes of several types, and electricity prices now and later.

Costs are in `objective`, searches in `decision`. Called by every module of this package and by the cost study.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray, IntArray

__all__ = ["POSTPONED", "Decision", "NodeType", "Nodes", "Problem", "WaitingJobs"]

POSTPONED: Final = -1
"""Node index of a job that does not run before the next decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """A node type: its GPUs, its power when switched on with idle GPUs, and the power a busy GPU adds, in watts.

    Raises
    ------
    BadInput
        If the type has no GPU, or a power is negative or not finite.
    """

    name: str
    gpu_type: str
    gpus: int
    idle_w: float
    gpu_active_w: float

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise BadInput(f"node type {self.name!r}: found {self.gpus} GPUs, expected at least 1")
        for what in ("idle_w", "gpu_active_w"):
            watts = getattr(self, what)
            if not 0.0 <= watts < np.inf:
                raise BadInput(f"node type {self.name!r}: found {what}={watts}, expected a finite power of at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """M nodes: `type_of` (M,) is the index of each node's type in `types` (K types)."""

    types: tuple[NodeType, ...]
    type_of: IntArray

    def __post_init__(self) -> None:
        if len(self.type_of) and not 0 <= self.type_of.min() <= self.type_of.max() < len(self.types):
            raise BadInput(
                f"nodes: found types {sorted(set(self.type_of.tolist()))}, expected 0..{len(self.types) - 1}"
            )

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

    def __post_init__(self) -> None:
        jobs = len(self.due_s)
        if self.weight_usd_per_s.shape != (jobs,) or self.run_s.ndim != 3 or len(self.run_s) != jobs:
            shapes = f"weights {self.weight_usd_per_s.shape}, run times {self.run_s.shape}"
            raise BadInput(f"jobs: found {shapes}, expected ({jobs},) and ({jobs}, node types, 1 + most GPUs)")
        if np.isnan(self.due_s).any() or (self.due_s == -np.inf).any():
            raise BadInput("jobs: found a due date that is not a number, expected seconds, or inf for none")
        if not ((self.weight_usd_per_s >= 0.0) & (self.weight_usd_per_s < np.inf)).all():
            raise BadInput("jobs: found a weight below 0 or not finite, expected USD per second of tardiness")
        if (self.run_s <= 0.0).any() or np.isinf(self.run_s).any():
            raise BadInput("jobs: found a run time of 0, below or infinite, expected seconds, or NaN where impossible")

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

    `period_s` (H) is the maximum time to the next decision. `rho` weights the worst case of postponed jobs; the code of
    the ANDREAS authors uses 100. `usd_per_kwh` is the price until the next decision; it may be negative, and is
    multiplied by `pue`. `later_usd_per_kwh` (ours) is the price after the next decision; if it is None, only energy
    until the next decision counts, as in ANDREAS. `current` is the decision in force: a running job that is stopped,
    moved or given another number of GPUs needs `restart_s` more run time.
    """

    jobs: WaitingJobs
    nodes: Nodes
    now_s: float
    usd_per_kwh: float
    pue: float = 1.0
    period_s: float = 3600.0
    rho: float = 100.0
    later_usd_per_kwh: float | None = None
    restart_s: float = 0.0
    current: Decision | None = None

    def __post_init__(self) -> None:
        kinds, most = len(self.nodes.types), max((kind.gpus for kind in self.nodes.types), default=0)
        if self.jobs.run_s.shape[1] != kinds or self.jobs.run_s.shape[2] <= most:
            raise BadInput(
                f"run times: found shape {self.jobs.run_s.shape}, expected (jobs, {kinds}, more than {most})"
            )
        if not (0.0 < self.period_s < np.inf and np.isfinite(self.now_s)):
            raise BadInput(f"period {self.period_s} s from {self.now_s} s: expected a finite, positive period")
        prices = (self.usd_per_kwh, self.later_usd_per_kwh or 0.0)
        if not np.isfinite(prices).all() or not 1.0 <= self.pue < np.inf:
            raise BadInput(f"prices {prices} with PUE {self.pue}: expected finite prices and a PUE of at least 1")
        if not (0.0 <= self.restart_s < np.inf and 0.0 <= self.rho < np.inf):
            raise BadInput(f"restart {self.restart_s} s, rho {self.rho}: expected finite values of at least 0")
        if self.current is not None and not len(self.current.node) == len(self.current.gpus) == len(self.jobs):
            raise BadInput(f"current: found {len(self.current.node)} jobs, expected {len(self.jobs)}")

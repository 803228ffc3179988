"""Jobs (gangs) inside the scheduler: waiting, with the fields that policies read, or running on machines.

True run times are not here: only the caller of the rounds has them.
Used by `queueing`, `queue`, `rounds`, `occupancy`, `preemption`, `pending` and the simulator.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

from scheduler_core.cluster import Allocation, Demand
from scheduler_core.types import Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in the queue, with the fields that policies read.

    Attributes
    ----------
    serial
        Number in order of arrival, which breaks ties.
    arrived_s
        Time of arrival; a job that returns to the queue keeps it, and so its position.
    request, granted
        The full request, and the demand of the first start; `full`: the job was killed for using more than granted and
        gets its full request from now on.
    predicted_s
        Predicted run time (p50) of the whole job; NaN if unknown.
    attained_s
        Run time so far, without lost work.
    owed_s
        Extra run time of the next start after a preemption.
    user, priority
        The user whose dominant share `drf` reads; the value that `priority` orders by, larger first.
    advice
        The recommendation of Algorithm 1, if it was called.
    """

    serial: int
    arrived_s: float
    request: Demand
    granted: Demand
    full: bool = False
    predicted_s: float = math.nan
    attained_s: float = 0.0
    owed_s: float = 0.0
    user: Hashable = None
    priority: float = 0.0
    advice: Recommendation | None = None

    @property
    def demand(self) -> Demand:
        """Return the demand of the next start."""
        return self.request if self.full else self.granted

    @property
    def remaining_s(self) -> float:
        """Return the remaining predicted run time, at least 0; inf without a prediction."""
        return math.inf if math.isnan(self.predicted_s) else max(self.predicted_s - self.attained_s, 0.0)

    @property
    def expected_s(self) -> float:
        """Return the predicted duration of the next start; inf without a prediction."""
        return self.remaining_s + self.owed_s

    def killed(self) -> "Waiting":
        """Return the job after a kill: its work is lost, and it gets its full request."""
        return replace(self, full=True, attained_s=0.0, owed_s=0.0)

    def interrupted(self) -> "Waiting":
        """Return the job after its machine went down: its work is lost."""
        return replace(self, attained_s=0.0, owed_s=0.0)

    def preempted(self, ran_s: float, checkpoint_s: float) -> "Waiting":
        """Return the job after a preemption: its work is kept, at the cost of a checkpoint."""
        return replace(self, attained_s=self.attained_s + ran_s, owed_s=checkpoint_s)

    def having_run(self, ran_s: float) -> "Waiting":
        """Return a running job with its run time so far, to compare with waiting jobs."""
        return replace(self, attained_s=self.attained_s + ran_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One run: the job at its start, its allocation, and the time of its start."""

    waiting: Waiting
    allocation: Allocation
    start_s: float

    @property
    def expected_end_s(self) -> float:
        """Return the predicted end; inf without a prediction."""
        return self.start_s + self.waiting.expected_s

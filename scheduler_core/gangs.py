"""Gangs as the scheduler keeps them: waiting for a place, or running somewhere.

Only what policies, backfill and preemption look at; how long a run really takes is known to whoever drives the rounds.
Called by `queueing`, `rounds`, `backfill`, `preemption`, `pending` and `plain`.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

from scheduler_core.cluster import Allocation, Demand
from scheduler_core.types import Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in the queue, as policies see it.

    Attributes
    ----------
    serial
        Number of the arrival, which settles ties.
    arrived_s
        Since when it waits; a job that comes back keeps it, and so its place.
    request, granted
        The full request and what the first start is given; `full` says that the job was killed for too little and is
        given its request from now on.
    predicted_s
        Predicted run time (p50) from the very start; NaN where nothing is known.
    attained_s
        How long it has run so far, as far as that work was not lost.
    owed_s
        What its next start pays for having been preempted.
    user, priority
        Whose dominant share DRF looks at; larger priorities go first under `priority`.
    advice
        What Algorithm 1 said of it, where it was asked.
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
        """Return what its next start is given."""
        return self.request if self.full else self.granted

    @property
    def remaining_s(self) -> float:
        """Return what is left of the predicted run time, at least 0; inf where nothing is predicted."""
        return math.inf if math.isnan(self.predicted_s) else max(self.predicted_s - self.attained_s, 0.0)

    @property
    def expected_s(self) -> float:
        """Return how long its next start should run by what is predicted; inf where nothing is."""
        return self.remaining_s + self.owed_s

    def killed(self) -> "Waiting":
        """Return the job after a kill: its work is lost, and it is given its full request."""
        return replace(self, full=True, attained_s=0.0, owed_s=0.0)

    def interrupted(self) -> "Waiting":
        """Return the job after its machine went away: its work is lost."""
        return replace(self, attained_s=0.0, owed_s=0.0)

    def preempted(self, ran_s: float, checkpoint_s: float) -> "Waiting":
        """Return the job after it was stopped: its work is kept, for a checkpoint's cost."""
        return replace(self, attained_s=self.attained_s + ran_s, owed_s=checkpoint_s)

    def having_run(self, ran_s: float) -> "Waiting":
        """Return a running job as policies compare it with waiting ones."""
        return replace(self, attained_s=self.attained_s + ran_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One run: the job as it was when it started, where it runs, and since when."""

    waiting: Waiting
    allocation: Allocation
    start_s: float

    @property
    def expected_end_s(self) -> float:
        """Return when it should end by what is predicted; inf where nothing is."""
        return self.start_s + self.waiting.expected_s

"""Algorithm 2, one scheduling round: admit and scale the new jobs, order the queue, place what fits.

Blocked jobs are passed over without bound, so small jobs overtake large ones. No clock and no events here.
Called by `simulator`; a real scheduler would drive `Scheduler` the same way.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler_core.cluster import Allocation, Cluster, Demand, demand_of
from scheduler_core.errors import SchedulerError
from scheduler_core.placement import Placement
from scheduler_core.queueing import QueuePolicy, QueueState, Waiting
from scheduler_core.types import IntArray, Job, Recommendation, Request

Scale = Callable[[Sequence[Job]], Sequence[Recommendation]]
"""Algorithm 1 with its predictor and policy filled in: one recommendation per job, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A job that starts now, and where."""

    waiting: Waiting
    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What one round did: the jobs that start, and those whose original request exceeds the whole cluster."""

    placed: list[Placed]
    never_fits: list[Waiting]


@dataclass(slots=True)
class Scheduler:
    """The queue before a cluster, and the rounds that empty it.

    A job is scaled once, in the round it arrives in, together with all other new jobs. Whether it can ever fit is
    judged by its original request, so that runs with and without shrinking leave out the same jobs.
    `match_gpu_type` restricts a gang to machines of its own GPU type.
    """

    cluster: Cluster
    policy: QueuePolicy
    placement: Placement
    scale: Scale | None = None
    match_gpu_type: bool = False
    _incoming: list[Waiting] = field(default_factory=list)
    _queue: list[tuple[float, int, Waiting]] = field(default_factory=list)
    _fresh: list[Waiting] = field(default_factory=list)
    _shapes: dict[Demand, int] = field(default_factory=dict)
    _released: bool = False
    _held: dict[str | None, IntArray] = field(default_factory=lambda: defaultdict(lambda: np.zeros(3, dtype=np.int64)))

    def submit(self, serial: int, job: Job, now_s: float) -> None:
        """Hand in a new job; the next round admits it."""
        new = Waiting(
            serial=serial, job=job, arrived_s=now_s, granted=job.request, demand=self._demand(job, job.request)
        )
        self._incoming.append(new)

    def resubmit(self, waiting: Waiting) -> None:
        """Queue a killed job again: its full request, its old place."""
        self._fresh.append(self._granted(waiting, waiting.job.request))

    def release(self, placed: Placed) -> None:
        """Give back what a job held that ended or was killed."""
        self.cluster.release(placed.allocation)
        self._charge(placed, -1)
        self._released = True

    def waiting(self) -> list[Waiting]:
        """Return the jobs that wait for a place."""
        return [entry[2] for entry in self._queue]

    def round(self, now_s: float) -> RoundResult:
        """Run one round: scale the new jobs in one call, offer the queue in order, start what fits."""
        never_fits = self._admit()
        offered = self._offered(now_s)
        placed = place_in_order(offered, self.cluster, self.placement)
        for start in placed:
            self._charge(start, 1)
        if placed:
            gone = {start.waiting.serial for start in placed}
            self._queue = [entry for entry in self._queue if entry[1] not in gone]
        return RoundResult(placed=placed, never_fits=never_fits)

    def _admit(self) -> list[Waiting]:
        never_fits = [new for new in self._incoming if not self.cluster.could_host(new.demand)]
        refused = {new.serial for new in never_fits}
        admitted = [self._granted(new, new.granted) for new in self._incoming if new.serial not in refused]
        self._incoming = []
        if self.scale is not None and admitted:
            recommendations = self.scale([new.job for new in admitted])
            if len(recommendations) != len(admitted):
                raise SchedulerError(f"scale: found {len(recommendations)} recommendations for {len(admitted)} jobs")
            admitted = [
                replace(self._granted(new, advice.target), recommendation=advice)
                for new, advice in zip(admitted, recommendations, strict=True)
            ]
        self._fresh.extend(admitted)
        return never_fits

    def _granted(self, waiting: Waiting, granted: Request) -> Waiting:
        demand = self._demand(waiting.job, granted)
        shape = self._shapes.setdefault(demand, len(self._shapes) + 1)
        return replace(waiting, granted=granted, demand=demand, shape=shape)

    def _demand(self, job: Job, granted: Request) -> Demand:
        return demand_of(granted, job.instances, job.gpu_type if self.match_gpu_type else None)

    def _offered(self, now_s: float) -> list[Waiting]:
        """Return the jobs worth trying, in order.

        What was passed over in the last round still does not fit unless something was released since: then only the
        new jobs are offered.
        """
        state = QueueState(dominant_share=self._dominant_shares() if self.policy.dynamic else {})
        fresh = [(self.policy.key(new, state, now_s), new.serial, new) for new in self._fresh]
        for entry in fresh:
            insort(self._queue, entry, key=_rank)
        self._fresh = []
        if not self._released:
            return [entry[2] for entry in sorted(fresh, key=_rank)]
        self._released = False
        if self.policy.dynamic:
            self._queue = sorted(((self.policy.key(w, state, now_s), s, w) for _, s, w in self._queue), key=_rank)
        return self.waiting()

    def _dominant_shares(self) -> dict[str | None, float]:
        total = np.maximum(self.cluster.capacity.sum(axis=0), 1)
        return {user: float((held / total).max()) for user, held in self._held.items()}

    def _charge(self, placed: Placed, sign: int) -> None:
        demand = placed.allocation.demand
        self._held[placed.waiting.job.user] += sign * demand.instances * np.array(demand.units, dtype=np.int64)


def place_in_order(offered: Sequence[Waiting], cluster: Cluster, placement: Placement) -> list[Placed]:
    """Place every job that fits, in order, passing over those that do not; allocates on `cluster`.

    Free capacity only falls during a round, so a demand that did not fit once is not tried again.
    """
    if not offered:
        return []
    _, first, kind_of = np.unique([waiting.shape for waiting in offered], return_index=True, return_inverse=True)
    demands = [offered[i].demand for i in first.tolist()]
    feasible = cluster.fits(demands)
    placed: list[Placed] = []
    at = 0
    while at < len(offered):
        open_ = feasible[kind_of[at:]]
        step = int(open_.argmax())
        if not open_[step]:
            break
        at += step
        allocation = placement(offered[at].demand, cluster)
        if allocation is None:
            feasible[kind_of[at]] = False
        else:
            cluster.allocate(allocation)
            placed.append(Placed(waiting=offered[at], allocation=allocation))
            feasible &= cluster.fits(demands)
        at += 1
    return placed


def _rank(entry: tuple[float, int, Waiting]) -> tuple[float, int]:
    return entry[:2]

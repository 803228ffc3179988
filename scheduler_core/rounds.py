"""Algorithm 2, one scheduling round: admit and scale the new jobs, order the queue, start what may and fits.

The library object that a real scheduler drives: jobs are submitted and released, rounds say what starts where. No
clock, no events and no true run times here.
Called by `plain`, `pending` and whoever schedules a real cluster.
"""

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from scheduler_core.advice import Scale, advised
from scheduler_core.backfill import Promise, promised
from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, Room, demand_of
from scheduler_core.discipline import Discipline
from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.gangs import Running, Waiting
from scheduler_core.placement import placement_of
from scheduler_core.preemption import preempts, victims
from scheduler_core.queueing import QueueState, aged, policy_of
from scheduler_core.types import IntArray, Job, Recommendation, Request

Entry = tuple[float, int, Waiting]
"""A place in the queue: key, serial, job."""

NOTHING_HELD: Final = QueueState()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What one round did: runs that start, runs that were stopped for them (their jobs wait again), jobs too large.

    `never_fits` holds the jobs whose full request exceeds the empty cluster; they are not queued.
    """

    started: list[Running]
    preempted: list[Running]
    never_fits: list[Waiting]


class Scheduler:
    """The queue before a cluster, and the rounds that empty it under one discipline.

    A job is scaled once, in the round it arrives in, together with all other new jobs. Whether it can ever fit is
    judged by its full request, so that runs with and without shrinking leave out the same jobs.

    Examples
    --------
    >>> from scheduler_core.cluster import paper_machines
    >>> from scheduler_core.types import Request
    >>> scheduler = Scheduler(paper_machines())
    >>> asked = Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5)
    >>> serial = scheduler.submit(Job(job_id="a", trace="toy", task_type="ctr", request=asked, instances=20), 0.0)
    >>> [run.allocation.counts for run in scheduler.round(0.0).started]
    [((0, 16), (1, 4))]
    >>> ended = scheduler.release(serial)
    """

    def __init__(
        self, machines: Sequence[Machine], discipline: Discipline | None = None, *, scale: Scale | None = None
    ) -> None:
        self.cluster = Cluster(machines)
        self.discipline = discipline or Discipline()
        self.place = placement_of(self.discipline.placement)
        self.head: int | None = None
        """The job that was first in order and could not start in the last round."""
        self.overtaken = 0
        """How many others have started behind the head since it became it."""
        self._policy = aged(policy_of(self.discipline.policy), self.discipline.aging)
        self._preempts = preempts(self.discipline)
        self._scale = scale
        self._submitted: list[tuple[Job, Waiting]] = []
        self._serials = 0
        self._queue: list[tuple[float, int, Waiting]] = []
        self._running: dict[int, Running] = {}
        self._held: dict[Hashable, IntArray] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
        self._room = self.cluster.room()
        self._blocked: set[Demand] = set()

    def submit(self, job: Job, now_s: float, *, priority: float = 0.0) -> int:
        """Hand in a new job, which the next round scales and queues; return its serial."""
        serial, demand = self._serials, self._demand(job, job.request)
        self._serials += 1
        new = Waiting(serial=serial, arrived_s=now_s, request=demand, granted=demand, user=job.user, priority=priority)
        self._submitted.append((job, new))
        return serial

    def enqueue(self, waiting: Waiting) -> bool:
        """Queue a job as it is; False, and not queued, when its full request exceeds the empty cluster."""
        if not self.cluster.could_host(waiting.request):
            return False
        self._serials = max(self._serials, waiting.serial + 1)
        self._queue_up(waiting)
        return True

    def release(self, serial: int, *, killed: bool = False) -> Running:
        """Give back what a run held that ended; after a kill the job waits again, for its full request."""
        run = self._stop(serial)
        if killed:
            self._queue_up(run.waiting.killed())
        return run

    def down(self, machine: int) -> list[Running]:
        """Take a machine out; gangs with an instance there lose their work and wait again. Return their runs."""
        self.cluster.down(machine)
        lost = [run for run in self._running.values() if any(at == machine for at, _ in run.allocation.counts)]
        for run in lost:
            self._stop(run.waiting.serial)
            self._queue_up(run.waiting.interrupted())
        self._room = self.cluster.room()
        return lost

    def up(self, machine: int) -> None:
        """Take a machine back in, once every `down` of it was followed by an `up`."""
        self.cluster.up(machine)
        self._more_room()

    def waiting(self, now_s: float) -> list[Waiting]:
        """Return the queue in the order in which a round would offer it, were nothing to start."""
        return [waiting for _, _, waiting in self._ranked(self._queue, now_s)]

    def queued(self) -> list[Waiting]:
        """Return the jobs that wait for a place, in no promised order."""
        return [waiting for _, _, waiting in self._queue]

    def running(self) -> list[Running]:
        """Return the runs in the order of their starts."""
        return list(self._running.values())

    def room(self) -> Room:
        """Return what is free now on machines that are up."""
        return self._room

    def round(self, now_s: float) -> RoundResult:
        """Run one round: scale the new jobs in one call, offer the queue in order, start what may and fits."""
        never_fits = self._admit()
        preempted: list[Running] = []
        if self._preempts:
            started = self._preempting(now_s, preempted)
        elif self.discipline.backfill == "easy":
            started = self._backfilling(now_s)
        else:
            started = self._passing_over(now_s)
        if started:
            gone = {run.waiting.serial for run in started}
            self._queue = [entry for entry in self._queue if entry[1] not in gone]
        return RoundResult(started=started, preempted=preempted, never_fits=never_fits)

    def _passing_over(self, now_s: float) -> list[Running]:
        """Offer the queue; jobs that do not fit are passed over, the first of them at most `overtakes` times."""
        most = self.discipline.overtakes
        started: list[Running] = []
        head: int | None = None
        for job in self._offered(now_s):
            if head is not None and most is not None and self.overtaken >= most:
                break
            run = self._start_where(job, self._allocation(job.demand), now_s)
            if run is not None:
                started.append(run)
                self.overtaken += head is not None
            elif head is None:
                head = job.serial
                self._lead(head)
        if head is None:
            self._lead(None)
        return started

    def _backfilling(self, now_s: float) -> list[Running]:
        """Offer the queue up to the first that does not fit, then start behind it what does not delay it."""
        started: list[Running] = []
        offered = self._offered(now_s)
        head: Waiting | None = None
        for job in offered:
            run = self._start_where(job, self._allocation(job.demand), now_s)
            if run is None:
                head = job
                break
            started.append(run)
        self._lead(None if head is None else head.serial)
        if head is None:
            return started
        promise = self.promise(head, now_s)
        spare, unclaimed = promise.spare, self._room.within(promise.spare)
        for job in islice(offered, self.discipline.backfill_depth):
            outlasts = now_s + job.expected_s > promise.shadow_s
            room = unclaimed if outlasts else self._room
            filled = self._start_where(job, self._placed(job.demand, room), now_s)
            if filled is not None:
                started.append(filled)
                self.overtaken += 1
                spare = spare.without([filled.allocation]) if outlasts else spare
                unclaimed = self._room.within(spare)
        return started

    def promise(self, head: Waiting, now_s: float) -> Promise:
        """Return what backfill promises a head that does not fit now."""
        return promised(head, self._running.values(), self._room, self.place, now_s)

    def _preempting(self, now_s: float, preempted: list[Running]) -> list[Running]:
        """Offer the queue; a job that does not fit may stop running ones of larger keys, which then wait again."""
        started: list[Running] = []
        stoppable = self._stoppable(now_s)
        head: int | None = None
        for key, _, job in self._queue.copy():
            allocation = self._allocation(job.demand)
            if allocation is None:
                stopped = victims(job, key, stoppable, self._room)
                allocation = self._placed(job.demand, self._room.with_(run.allocation for run in stopped))
                if allocation is not None:
                    preempted.extend(stopped)
                    stoppable = [entry for entry in stoppable if entry[1] not in stopped]
                    for run in stopped:
                        self._stop(run.waiting.serial)
                        self._queue_up(run.waiting.preempted(now_s - run.start_s, self.discipline.checkpoint_s))
            run = self._start_where(job, allocation, now_s)
            if run is not None:
                started.append(run)
            elif head is None:
                head = job.serial
        self._lead(head)
        return started

    def _stoppable(self, now_s: float) -> list[tuple[float, Running]]:
        """Return the runs that have had their quantum, with their keys as of now, worst first."""
        ran = [run for run in self._running.values() if now_s - run.start_s >= self.discipline.quantum_s]
        keyed = [(self._key(run.waiting.having_run(now_s - run.start_s), now_s), run) for run in ran]
        return sorted(keyed, key=lambda entry: (entry[0], entry[1].waiting.serial), reverse=True)

    def _offered(self, now_s: float) -> Iterator[Waiting]:
        """Yield the queue in order; under a dynamic policy those left are ranked anew after every start."""
        left = self._queue
        while left:
            ranked, running = self._ranked(left, now_s), len(self._running)
            left = []
            for at, (_, _, job) in enumerate(ranked):
                yield job
                if self._policy.dynamic and len(self._running) > running:
                    left = ranked[at + 1 :]
                    break

    def _ranked(self, entries: list[Entry], now_s: float) -> list[Entry]:
        if not self._policy.dynamic:
            return entries
        state = QueueState(dominant_share=self._dominant_shares())
        return sorted((self._key(job, now_s, state), serial, job) for _, serial, job in entries)

    def _key(self, job: Waiting, now_s: float, state: QueueState = NOTHING_HELD) -> float:
        key = self._policy.key(job, state, now_s)
        if math.isnan(key):
            raise BadInput(f"queue policy: found the key NaN for job {job.serial}, expected a number that orders")
        return key

    def _dominant_shares(self) -> dict[Hashable, float]:
        return {user: float((held / self.cluster.total).max()) for user, held in self._held.items()}

    def _queue_up(self, job: Waiting) -> None:
        key = 0.0 if self._policy.dynamic else self._key(job, job.arrived_s)
        insort(self._queue, (key, job.serial, job))

    def _lead(self, head: int | None) -> None:
        if head != self.head:
            self.head, self.overtaken = head, 0

    def _allocation(self, demand: Demand) -> Allocation | None:
        """Place a gang in what is free now; what did not fit is not tried again until something is given back."""
        if demand in self._blocked:
            return None
        allocation = self._placed(demand, self._room)
        if allocation is None:
            self._blocked.add(demand)
        return allocation

    def _placed(self, demand: Demand, room: Room) -> Allocation | None:
        return self.place(demand, room) if room.fits(demand) else None

    def _start_where(self, job: Waiting, allocation: Allocation | None, now_s: float) -> Running | None:
        if allocation is None:
            return None
        run = Running(waiting=job, allocation=allocation, start_s=now_s)
        self.cluster.allocate(allocation)
        self._room = self.cluster.room()
        self._running[job.serial] = run
        self._charge(run, 1)
        return run

    def _stop(self, serial: int) -> Running:
        if serial not in self._running:
            raise SchedulerError(
                f"release: found no running job {serial}, expected one of {len(self._running)} running"
            )
        run = self._running.pop(serial)
        self.cluster.release(run.allocation)
        self._charge(run, -1)
        self._more_room()
        return run

    def _more_room(self) -> None:
        self._room = self.cluster.room()
        self._blocked.clear()

    def _charge(self, run: Running, sign: int) -> None:
        demand = run.allocation.demand
        self._held[run.waiting.user] += sign * demand.instances * np.array(demand.units, dtype=np.int64)

    def _admit(self) -> list[Waiting]:
        """Queue what was submitted since the last round, scaled in one call; return what can never fit."""
        never_fits = [new for _, new in self._submitted if not self.cluster.could_host(new.request)]
        refused = {new.serial for new in never_fits}
        admitted = [(job, new) for job, new in self._submitted if new.serial not in refused]
        self._submitted = []
        if self._scale is None or not admitted:
            scaled = [new for _, new in admitted]
        else:
            answers = advised([job for job, _ in admitted], self._scale)
            scaled = [self._scaled(job, new, answer) for (job, new), answer in zip(admitted, answers, strict=True)]
        for new in scaled:
            self._queue_up(new)
        return never_fits

    def _scaled(self, job: Job, new: Waiting, answer: Recommendation) -> Waiting:
        granted = self._demand(job, answer.target)
        return replace(new, granted=granted, predicted_s=answer.run_time_p50_s, advice=answer)

    def _demand(self, job: Job, request: Request) -> Demand:
        return demand_of(request, job.instances, job.gpu_type if self.discipline.match_gpu_type else None)

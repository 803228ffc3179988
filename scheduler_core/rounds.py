"""Scheduling rounds (Algorithm 2 of Yang, Hong and Tang): admit and shrink new jobs, order the queue, start jobs.

A real scheduler can use it: it submits jobs, reports ended runs, and calls rounds, which return what starts where.
Times are arguments; true run times are not needed. Called by `pending` and the readable engine of
`pipelines.simulation`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from scheduler_core.cluster import Demand, Machine, demand_of, in_devices
from scheduler_core.gangs import Running, Waiting
from scheduler_core.occupancy import Occupancy
from scheduler_core.placement import placement_of, sharing_of
from scheduler_core.preemption import Stoppable
from scheduler_core.queue import LOOK_AHEAD_JOBS, JobQueue, Offers
from scheduler_core.queue_policies import aged, policy_of
from scheduler_core.queueing import Discipline
from scheduler_core.recommendations import Scale, advised
from scheduler_core.types import Job, Recommendation, Request

__all__ = ["Scheduler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """Result of one round: the started runs, and the runs preempted for them, whose jobs wait again.

    `never_fits` lists the new jobs that are not queued because their full request exceeds the empty cluster.
    """

    started: list[Running]
    preempted: list[Running]
    never_fits: list[Waiting]


class Scheduler:
    """A scheduler: a queue and a cluster, with rounds that start jobs under one discipline.

    `scale` shrinks the requests of new jobs; it is called once per round, for all jobs submitted since the last round.
    Whether a job can ever fit depends on its full request, so that schedulers with and without shrinking refuse the
    same jobs.

    If at least `look_ahead_jobs` jobs are queued, the queue order is static and GPUs are pooled, compiled code places
    jobs in batches, with the same result as one by one. With None jobs are always placed one by one.

    Examples
    --------
    >>> from scheduler_core.cluster import paper_machines
    >>> from scheduler_core.types import Request
    >>> scheduler = Scheduler(paper_machines())
    >>> request = Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5)
    >>> serial = scheduler.submit(Job(job_id="a", trace="toy", task_type="ctr", request=request, instances=20), 0.0)
    >>> [run.allocation.counts for run in scheduler.round(0.0).started]
    [((0, 16), (1, 4))]
    >>> ended = scheduler.release(serial)
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        discipline: Discipline | None = None,
        *,
        scale: Scale | None = None,
        look_ahead_jobs: int | None = LOOK_AHEAD_JOBS,
    ) -> None:
        self.discipline = discipline or Discipline()
        self.sharing = sharing_of(self.discipline.placement, self.discipline.sharing)
        self.place = placement_of(self.discipline.placement, self.discipline.seed)
        self.occupancy = Occupancy(machines, self.place, self.sharing)
        policy = policy_of(self.discipline.policy)
        self.queue = JobQueue(aged(policy, self.discipline.aging), self.occupancy.state)
        self.head: int | None = None
        """Serial of the head: the first job in queue order that could not start in the last round."""
        self.overtaken = 0
        """Number of jobs that started behind the head since it became the head."""
        self._preempts = self.discipline.preempts()
        self._look_ahead_jobs = None if policy.dynamic or self.sharing == "devices" else look_ahead_jobs
        self._learn: Callable[[Demand], None] | None = getattr(self.place, "arrived", None)
        self._scale = scale
        self.refused: dict[int, Waiting] = {}
        """The jobs, by serial, that were not queued because their full request exceeds the empty cluster."""
        self._submitted: list[tuple[Job, Waiting]] = []
        self._serials = 0

    @property
    def submitted(self) -> list[Waiting]:
        """Return the jobs submitted since the last round, which the next round admits."""
        return [new for _, new in self._submitted]

    def submit(self, job: Job, now_s: float, *, priority: float = 0.0) -> int:
        """Submit a new job, which the next round shrinks and queues; return its serial.

        Raises
        ------
        BadInput
            If the job has less than one instance or requests an invalid amount.
        """
        serial, demand = self._serials, self._demand(job, job.request)
        self._serials += 1
        new = Waiting(serial=serial, arrived_s=now_s, request=demand, granted=demand, user=job.user, priority=priority)
        self._submitted.append((job, new))
        return serial

    def enqueue(self, waiting: Waiting) -> bool:
        """Queue a job without shrinking it; if its request exceeds the empty cluster, refuse it and return False.

        If GPUs are shared by device, a request of more than one GPU is rounded up to whole GPUs.
        """
        if self.sharing == "devices":
            request, granted = in_devices(waiting.request), in_devices(waiting.granted)
            waiting = replace(waiting, request=request, granted=granted)
        if not self.occupancy.cluster.could_host(waiting.request):
            self.refused[waiting.serial] = waiting
            return False
        self._serials = max(self._serials, waiting.serial + 1)
        self._join(waiting)
        return True

    def release(self, serial: int, *, killed: bool = False) -> Running:
        """Release the allocation of an ended run; if it was killed, the job waits again with its full request."""
        run = self.occupancy.stop(serial)
        if killed:
            self.queue.join(run.waiting.killed())
        return run

    def down(self, machine: int) -> list[Running]:
        """Mark a machine as down; gangs with an instance on it lose their work and wait again. Return their runs.

        Raises
        ------
        BadInput
            If no machine has that index.
        """
        lost = self.occupancy.down(machine)
        for run in lost:
            self.queue.join(run.waiting.interrupted())
        return lost

    def up(self, machine: int) -> None:
        """Undo one call of `down`; a machine is up again after as many calls of `up` as of `down`."""
        self.occupancy.up(machine)

    def round(self, now_s: float) -> RoundResult:
        """Run one round: shrink and queue new jobs, then start queued jobs that fit and may start."""
        never_fits = self._admit()
        preempted: list[Running] = []
        if self._preempts:
            started, preempted = self._preempting(now_s)
        elif self.discipline.backfill == "easy":
            started = self._backfilling(now_s)
        else:
            started = self._overtaking(now_s)
        self.queue.leave({run.waiting.serial for run in started})
        return RoundResult(started=started, preempted=preempted, never_fits=never_fits)

    def _overtaking(self, now_s: float) -> list[Running]:
        """Start jobs that fit, in queue order; at most `overtakes` of them may pass the first that does not fit."""
        most = self.discipline.overtakes
        started: list[Running] = []
        head: int | None = None
        for (_, serial, job), allocation in self._offers(now_s):
            if allocation is not None:
                started.append(self.occupancy.start(job, allocation, now_s))
                self.overtaken += head is not None
            elif head is None:
                head = serial
                self._lead(head)
            if head is not None and most is not None and self.overtaken >= most:
                break
        if head is None:
            self._lead(None)
        return started

    def _backfilling(self, now_s: float) -> list[Running]:
        """Start jobs in queue order up to the first that does not fit; then later jobs that do not delay it."""
        started: list[Running] = []
        offers = self._offers(now_s)
        for (_, serial, job), allocation in offers:
            if allocation is None:
                self._lead(serial)
                return started + self._behind(job, offers, now_s)
            started.append(self.occupancy.start(job, allocation, now_s))
        self._lead(None)
        return started

    def _behind(self, head: Waiting, offers: Offers, now_s: float) -> list[Running]:
        """Start jobs behind the head that end before its reservation begins, or that need no reserved capacity."""
        started: list[Running] = []
        reservation = self.occupancy.reservation(head, now_s)
        spare, unclaimed = reservation.spare, self.occupancy.room.within(reservation.spare)
        for _, _, job in islice(offers.rest(), self.discipline.backfill_depth):
            outlasts = now_s + job.expected_s > reservation.shadow_s
            allocation = self.occupancy.placed_in(job.demand, unclaimed if outlasts else self.occupancy.room)
            if allocation is None:
                continue
            started.append(self.occupancy.start(job, allocation, now_s))
            self.overtaken += 1
            spare = spare.without([allocation]) if outlasts else spare
            unclaimed = self.occupancy.room.within(spare)
        return started

    def _preempting(self, now_s: float) -> tuple[list[Running], list[Running]]:
        """Start jobs in queue order; one that does not fit may stop runs with larger keys, whose jobs wait again."""
        started: list[Running] = []
        preempted: list[Running] = []
        stoppable = Stoppable(self._past_their_quantum(now_s), self.occupancy.room)
        head: int | None = None
        # A preemption changes the free capacity for later jobs: place in batches only without preemptible runs.
        for (key, serial, job), allocation in self._offers(now_s, alone=not stoppable):
            if allocation is None and (stopped := stoppable.victims(job.demand, key, self.occupancy.room)):
                freed = self.occupancy.room.with_(run.allocation for run in stopped)
                allocation = self.occupancy.placed_in(job.demand, freed)
                if allocation is not None:
                    self._stop(stopped, now_s)
                    preempted.extend(stopped)
                    stoppable.stopped(stopped)
            if allocation is not None:
                stoppable.taken(allocation)
                started.append(self.occupancy.start(job, allocation, now_s))
            elif head is None:
                head = serial
        self._lead(head)
        return started, preempted

    def _offers(self, now_s: float, *, alone: bool = True) -> Offers:
        """Return the queue's jobs with their allocations; with `alone`, jobs may be placed in batches.

        With `alone`, the caller promises that until the last offer nothing stops, and nothing but offered jobs starts.
        """
        placement = self.discipline.placement
        ahead = (
            alone
            and self._look_ahead_jobs is not None
            and len(self.queue) >= self._look_ahead_jobs
            and isinstance(placement, str)
        )
        return Offers(self.queue.offered(now_s), self.occupancy, str(placement) if ahead else None)

    def _past_their_quantum(self, now_s: float) -> list[tuple[float, Running]]:
        """Return the runs that have run for at least the quantum, with their queue keys at `now_s`."""
        ran = [run for run in self.occupancy.running.values() if now_s - run.start_s >= self.discipline.quantum_s]
        cost_s = self.discipline.restart_cost_s
        return [(self.queue.key(run.waiting.having_run(now_s - run.start_s, cost_s), now_s), run) for run in ran]

    def _stop(self, runs: Sequence[Running], now_s: float) -> None:
        for run in runs:
            self.occupancy.stop(run.waiting.serial)
            self.queue.join(run.waiting.preempted(now_s - run.start_s, self.discipline.restart_cost_s))

    def _lead(self, head: int | None) -> None:
        if head != self.head:
            self.head, self.overtaken = head, 0

    def _admit(self) -> list[Waiting]:
        """Queue the jobs submitted since the last round, after shrinking them; return those that can never fit."""
        could_host = self.occupancy.cluster.could_host
        never_fits = [new for _, new in self._submitted if not could_host(new.request)]
        self.refused |= {new.serial: new for new in never_fits}
        admitted = [(job, new) for job, new in self._submitted if new.serial not in self.refused]
        self._submitted = []
        scaled = [new for _, new in admitted]
        if self._scale is not None and admitted:
            answers = advised([job for job, _ in admitted], self._scale)
            scaled = [self._scaled(job, new, answer) for (job, new), answer in zip(admitted, answers, strict=True)]
        for new in scaled:
            self._join(new)
        return never_fits

    def _join(self, new: Waiting) -> None:
        """Queue a new job, and report it to the placement if that learns from arrivals."""
        self.queue.join(new)
        if self._learn is not None:
            self._learn(new.demand)

    def _scaled(self, job: Job, new: Waiting, answer: Recommendation) -> Waiting:
        granted = self._demand(job, answer.target)
        p50_s, p90_s = answer.run_time_p50_s, answer.run_time_p90_s
        return replace(new, granted=granted, predicted_s=p50_s, predicted_p90_s=p90_s, advice=answer)

    def _demand(self, job: Job, request: Request) -> Demand:
        demand = demand_of(request, job.instances, job.gpu_type if self.discipline.match_gpu_type else None)
        return in_devices(demand) if self.sharing == "devices" else demand

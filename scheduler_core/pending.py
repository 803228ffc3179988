"""Explanation for a user why a waiting job does not run although GPUs are free.

Reads a `rounds.Scheduler` without changing it, and computes expected times from predicted run times. Called by
`changes`, which adds the changes that would let the job start.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduler_core.ending import expected_starts_s, freeing
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Running
from scheduler_core.rounds import Scheduler
from scheduler_core.shortages import Shortage, beyond, fragmented_by, in_words, shortages_of


class Hold(StrEnum):
    """The reason why a job has not started.

    `ROOM`: it does not fit the free capacity. `OVERTAKES`, `RESERVATION` and `DEPTH`: it fits, but a rule protects the
    head of the queue. `NOTHING`: it fits and the next round starts it. `NEVER`: its full request exceeds the whole
    cluster. `ROUND`: it was submitted after the last round.
    """

    ROOM = "room"
    OVERTAKES = "overtakes"
    RESERVATION = "reservation"
    DEPTH = "depth"
    NOTHING = "nothing"
    NEVER = "never"
    ROUND = "round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Explanation of why a job waits and when it should start.

    - `place`: position of the job in the queue, from 1; 0 for a job that can never fit and so is not queued.
    - `waiting`: number of waiting jobs.
    - `hold`: the reason why the job waits.
    - `head`: serial of the head of the queue, if the reason is a rule that protects the head.
    - `instances`, `hosted`: number of instances in the gang, and how many of them would fit now.
    - `shortages`: comparison of each requested resource with the free capacity; for a job that can never fit, with the
      empty cluster.
    - `fragmented`: whether enough of every requested resource is free in total although the instances do not fit.
    - `other_machines`, `away_machines`: number of machines with GPU types that the job does not allow, and number of
      allowed machines that are down.
    - `must_end`: serials of the running jobs, in order of expected end, that must end before the job fits.
    - `room_in_s`: seconds until the jobs in `must_end` are expected to have ended; inf if unknown, or if machines must
      come up first.
    - `expected_wait_s`: seconds until the job's expected start, after all jobs before it in the queue; inf if unknown.
    """

    serial: int
    place: int
    waiting: int
    hold: Hold
    head: int | None
    instances: int
    hosted: int
    shortages: tuple[Shortage, ...]
    fragmented: bool
    other_machines: int
    away_machines: int
    must_end: tuple[int, ...]
    room_in_s: float
    expected_wait_s: float

    def __str__(self) -> str:
        """Return the explanation as text for the user."""
        return self.in_words(str)

    def in_words(self, name: Callable[[int], str]) -> str:
        """Return the explanation as text for the user; `name` returns the name of a job by its serial."""
        if self.hold == Hold.NEVER:
            return self._never(name(self.serial))
        if self.hold == Hold.ROUND:
            return (
                f"Job {name(self.serial)} was submitted after the last round: the next round admits it. "
                f"As requested, {self.hosted} of its {self.instances} instances would fit now."
            )
        place = f"Job {name(self.serial)} is number {self.place} of {self.waiting} in the queue."
        head = "" if self.head is None else name(self.head)
        sentences = [place, held(self.hold, head, self.hosted, self.instances)]
        if self.hold == Hold.ROOM:
            alone = [shortage for shortage in self.shortages if shortage.binds]
            sentences += [in_words(shortage) for shortage in alone or self.shortages]
            if self.fragmented:
                sentences.append(fragmented_by(self.shortages))
        if self.other_machines:
            sentences.append(f"Machines of another GPU type: {self.other_machines}.")
        if self.away_machines:
            sentences.append(f"Machines it could use that are down: {self.away_machines}.")
        if self.must_end:
            jobs = ", ".join(map(name, self.must_end))
            sentences.append(f"It fits once these running jobs have ended: {jobs} (expected {_span(self.room_in_s)}).")
        elif self.hold == Hold.ROOM:
            sentences.append("It does not fit even when all running jobs have ended: machines must come up.")
        sentences.append(f"Its start is expected {_span(self.expected_wait_s)}.")
        return " ".join(sentences)

    def _never(self, job: str) -> str:
        sentences = [f"Job {job} can never start: it requests more than the whole empty cluster has."]
        whose = "all of its GPU type" if self.other_machines else "the whole cluster"
        alone = [shortage for shortage in self.shortages if shortage.binds]
        sentences += [beyond(shortage, whose) for shortage in alone or self.shortages]
        if self.other_machines:
            sentences.append(f"Machines of another GPU type: {self.other_machines}.")
        return " ".join(sentences)


def explain_pending(
    scheduler: Scheduler, serial: int, now_s: float, starts_s: Mapping[int, float] | None = None
) -> Pending:
    """Return why a job waits, which jobs must end first, and when the job should start.

    A job that no round has admitted yet, or that can never fit, is explained by its full request. Preemption is
    ignored, even if the discipline allows it. `starts_s` are the `expected_starts_s` of several jobs, if known.

    Raises
    ------
    BadInput
        If the job neither waits nor was refused because it can never fit.

    Examples
    --------
    >>> from scheduler_core.cluster import Machine
    >>> from scheduler_core.types import Job, Request
    >>> two = [Machine(name=name, cpu_cores=8, mem_gib=64, gpus=4) for name in ("a", "b")]
    >>> scheduler = Scheduler(two)
    >>> for gpus in (3, 3, 2):
    ...     request = Request(cpu_cores=1, mem_gib=1, gpus=gpus)
    ...     number = scheduler.submit(Job(job_id="j", trace="toy", task_type="ctr", request=request), 0.0)
    >>> print(len(scheduler.round(0.0).started), explain_pending(scheduler, 2, 60.0).fragmented)
    2 True
    """
    ranked = [job for _, _, job in scheduler.queue.ranked(now_s)]
    place = next((at for at, job in enumerate(ranked) if job.serial == serial), None)
    if place is None:
        return _outside(scheduler, serial, len(ranked))
    job, room = ranked[place], scheduler.occupancy.room
    shortages = shortages_of(job.demand, room)
    hold, head = holds_of(scheduler, now_s)[serial]
    freed = freeing(job.demand, room, list(scheduler.occupancy.running.values()), now_s)
    of_type = scheduler.occupancy.cluster.of_type(job.demand.gpu_type)
    return Pending(
        serial=serial,
        place=place + 1,
        waiting=len(ranked),
        hold=hold,
        head=head,
        instances=job.demand.instances,
        hosted=min(int(room.hosts(job.demand).sum()), job.demand.instances),
        shortages=shortages,
        fragmented=hold == Hold.ROOM
        and bool(shortages)
        and all(shortage.free >= shortage.wanted for shortage in shortages),
        other_machines=int((~of_type).sum()),
        away_machines=int((of_type & ~room.up).sum()),
        must_end=tuple(run.waiting.serial for run in freed),
        room_in_s=_room_in_s(hold, freed, now_s),
        expected_wait_s=(starts_s or expected_starts_s(scheduler, [serial], now_s))[serial] - now_s,
    )


def _outside(scheduler: Scheduler, serial: int, queued: int) -> Pending:
    """Explain a job that is not in the queue: it is not yet admitted, or can never fit."""
    new = {job.serial: job for job in scheduler.submitted}
    job = new.get(serial, scheduler.refused.get(serial))
    if job is None:
        raise BadInput(f"pending: found job {serial}, expected one of the {queued + len(new)} that wait")
    cluster = scheduler.occupancy.cluster
    never = not cluster.could_host(job.request)
    room = cluster.empty if never else scheduler.occupancy.room
    of_type, hosted = cluster.of_type(job.request.gpu_type), int(room.hosts(job.request).sum())
    return Pending(
        serial=serial,
        place=0 if never else queued + list(new).index(serial) + 1,
        waiting=queued if never else queued + len(new),
        hold=Hold.NEVER if never else Hold.ROUND,
        head=None,
        instances=job.request.instances,
        hosted=min(hosted, job.request.instances),
        shortages=shortages_of(job.request, room),
        fragmented=False,
        other_machines=int((~of_type).sum()),
        away_machines=0 if never else int((of_type & ~room.up).sum()),
        must_end=(),
        room_in_s=0.0 if not never and hosted >= job.request.instances else math.inf,
        expected_wait_s=math.inf,
    )


def holds_of(scheduler: Scheduler, now_s: float) -> dict[int, tuple[Hold, int | None]]:
    """Return why each queued job waits, by serial, and the head of the queue if the reason is a rule that protects it.

    Jobs are in queue order.
    """
    ranked = [job for _, _, job in scheduler.queue.ranked(now_s)]
    room, rules = scheduler.occupancy.room, scheduler.discipline
    fits = [room.fits(job.demand) for job in ranked]
    at = fits.index(False) if False in fits else len(ranked)
    found: dict[int, tuple[Hold, int | None]] = {}
    if at == len(ranked):
        return {job.serial: (Hold.NOTHING, None) for job in ranked}
    head = ranked[at]
    passed = scheduler.overtaken if scheduler.head == head.serial else 0
    exhausted = rules.overtakes is not None and passed >= rules.overtakes
    easy = rules.backfill == "easy" and any(fits[at:])
    reservation = scheduler.occupancy.reservation(head, now_s) if easy else None
    for place, job in enumerate(ranked):
        hold = Hold.NOTHING if fits[place] else Hold.ROOM
        if fits[place] and place > at:
            if exhausted:
                hold = Hold.OVERTAKES
            elif reservation is not None and place - at > rules.backfill_depth:
                hold = Hold.DEPTH
            elif reservation is not None and now_s + job.expected_s > reservation.shadow_s:
                hold = hold if room.within(reservation.spare).fits(job.demand) else Hold.RESERVATION
        found[job.serial] = hold, None if hold in (Hold.NOTHING, Hold.ROOM) else head.serial
    return found


def held(hold: Hold, head: str, hosted: int, instances: int) -> str:
    """Return a sentence on why a job in the queue has not started; `head` names the head of the queue."""
    return {
        Hold.ROOM: f"{hosted} of its {instances} instances would fit now.",
        Hold.OVERTAKES: f"It would fit, but job {head} before it has been overtaken as often as allowed.",
        Hold.RESERVATION: f"It would fit, but its run would delay job {head}, which has a reservation.",
        Hold.DEPTH: f"It would fit, but is too far behind job {head} for backfill to consider it.",
        Hold.NOTHING: "It fits: the next round starts it.",
    }[hold]


def _room_in_s(hold: Hold, freed: Sequence[Running], now_s: float) -> float:
    if hold != Hold.ROOM:
        return 0.0
    return max((max(run.expected_end_s - now_s, 0.0) for run in freed), default=math.inf)


def _span(seconds: float) -> str:
    if math.isinf(seconds):
        return "at an unknown time"
    if seconds <= 0.0:
        return "now"
    if seconds < 120.0:
        return f"in {seconds:.0f} s"
    return f"in {seconds / 60:.0f} min" if seconds < 7200.0 else f"in {seconds / 3600:.1f} h"

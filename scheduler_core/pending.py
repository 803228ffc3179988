"""Explanation for a user why a waiting job does not run although GPUs are free."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduler_core.round import Round
from scheduler_core.shortages import Shortage, beyond, fragmented_by, in_words, shortages_of


class Hold(StrEnum):
    """The reason why a job has not started.

    `ROOM`: it does not fit the free capacity. `OVERTAKES`, `RESERVATION` and `DEPTH`: it fits, but a rule protects the
    head of the queue. `NOTHING`: it fits and the next round starts it. `NEVER`: its request exceeds the whole
    cluster.
    """

    ROOM = "room"
    OVERTAKES = "overtakes"
    RESERVATION = "reservation"
    DEPTH = "depth"
    NOTHING = "nothing"
    NEVER = "never"


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


def explain_pending(after: Round, serial: int, expected_wait_s: float) -> Pending:
    """Return why a job still waits after a round, and which jobs must end first.

    A job that can never fit is compared with the empty cluster.
    """
    cluster = after.scene.cluster
    demand = after.scene.demand(after.scene.jobs[serial])
    never = serial in after.refused
    room = cluster.empty if never else after.room
    shortages, of_type = shortages_of(demand, room), cluster.of_type(demand.gpu_type)
    hold, head = holds_of(after)[serial]
    freed = [] if never else after.freeing(serial, after.serials)
    return Pending(
        serial=serial,
        place=0 if never else after.ranked.index(serial) + 1,
        waiting=len(after.ranked),
        hold=hold,
        head=head,
        instances=demand.instances,
        hosted=min(int(room.hosts(demand).sum()), demand.instances),
        shortages=shortages,
        fragmented=hold == Hold.ROOM
        and bool(shortages)
        and all(shortage.free >= shortage.wanted for shortage in shortages),
        other_machines=int((~of_type).sum()),
        away_machines=0 if never else int((of_type & ~room.up).sum()),
        must_end=tuple(freed),
        room_in_s=_room_in_s(hold, [after.end_s(each) for each in freed]),
        expected_wait_s=expected_wait_s,
    )


def holds_of(after: Round) -> dict[int, tuple[Hold, int | None]]:
    """Return why each job waits, by serial, and the head of the queue if the reason is a rule that protects it.

    Jobs are in queue order; those that can never fit come last.
    """
    scene, rules = after.scene, after.scene.rules
    demands = [scene.demand(scene.jobs[serial]) for serial in after.ranked]
    fits = [after.room.fits(demand) for demand in demands]
    never: dict[int, tuple[Hold, int | None]] = dict.fromkeys(after.refused, (Hold.NEVER, None))
    if False not in fits:
        return dict.fromkeys(after.ranked, (Hold.NOTHING, None)) | never
    at, tally = fits.index(False), after.state.queue.tally[0]
    head = after.ranked[at]
    exhausted = rules.overtakes is not None and tally["head"] == head and tally["overtaken"] >= rules.overtakes
    exhausted = exhausted or rules.overtakes == 0
    easy = rules.backfill == "easy" and any(fits[at:])
    reserved = after.reservation(head) if easy else None
    found: dict[int, tuple[Hold, int | None]] = {}
    for place, serial in enumerate(after.ranked):
        hold = Hold.NOTHING if fits[place] else Hold.ROOM
        if fits[place] and place > at:
            expected_s = scene.jobs[serial].run_time_s
            if exhausted:
                hold = Hold.OVERTAKES
            elif reserved is not None and place - at > rules.backfill_depth:
                hold = Hold.DEPTH
            elif reserved is not None and (math.inf if math.isnan(expected_s) else expected_s) > reserved[0]:
                hold = hold if after.room.within(reserved[1]).fits(demands[place]) else Hold.RESERVATION
        found[serial] = hold, None if hold in (Hold.NOTHING, Hold.ROOM) else head
    return found | never


def held(hold: Hold, head: str, hosted: int, instances: int) -> str:
    """Return a sentence on why a job in the queue has not started; `head` names the head of the queue."""
    return {
        Hold.ROOM: f"{hosted} of its {instances} instances would fit now.",
        Hold.OVERTAKES: f"It would fit, but job {head} before it has been overtaken as often as allowed.",
        Hold.RESERVATION: f"It would fit, but its run would delay job {head}, which has a reservation.",
        Hold.DEPTH: f"It would fit, but is too far behind job {head} for backfill to consider it.",
        Hold.NOTHING: "It fits: the next round starts it.",
    }[hold]


def _room_in_s(hold: Hold, ends_s: Sequence[float]) -> float:
    return max(ends_s, default=math.inf) if hold in (Hold.ROOM, Hold.NEVER) else 0.0


def _span(seconds: float) -> str:
    if math.isinf(seconds):
        return "at an unknown time"
    if seconds <= 0.0:
        return "now"
    if seconds < 120.0:
        return f"in {seconds:.0f} s"
    return f"in {seconds / 60:.0f} min" if seconds < 7200.0 else f"in {seconds / 3600:.1f} h"

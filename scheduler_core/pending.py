"""Why a waiting job does not start although GPUs are free: the rule or the shortage that holds it, and until when."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduler_core.cluster import UNITS, Demand, Room
from scheduler_core.devices import slots
from scheduler_core.round import Round
from scheduler_core.types import RESOURCES

GPUS: Final = RESOURCES.index("gpus")

CAUSES: Final = {
    "machines": "not named by the job",
    "gpu_type": "another GPU type",
    "device_mem_gib": "not enough GPU memory",
    "closed": "closed",
    "cpu_cores": "not enough CPU cores",
    "mem_gib": "not enough memory",
    "gpus": "not enough GPUs",
}
"""Why machines cannot take an instance of a job, by the field of the request or of the machine."""

WORDS: Final = {"cpu_cores": "Cores", "mem_gib": "GiB of memory", "gpus": "GPUs"}


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
    """Why a job waits, also as `text` for the user, and when it should start.

    - `place`: position of the job in the queue, from 1; 0 for a job that can never fit and so is not queued.
    - `head`: head of the queue, if `hold` is a rule that protects it.
    - `instances`, `hosted`: number of instances in the gang, and how many of them would fit now.
    - `short`: machines that cannot take an instance now, by cause; a machine may lack several resources.
    - `must_end`: the running jobs, in order of expected end, that must end before the job fits.
    - `room_in_s`: seconds until these are expected to have ended; inf if unknown, or if machines must come up first.
    - `expected_wait_s`: seconds until the job's expected start, after all jobs before it in the queue; inf if unknown.
    """

    job_id: str
    hold: Hold
    place: int
    head: str | None
    instances: int
    hosted: int
    short: Mapping[str, int]
    must_end: tuple[str, ...]
    room_in_s: float
    expected_wait_s: float
    text: str


def pending(after: Round, serial: int, expected_wait_s: float) -> Pending:
    """Return why a job still waits after a round; a job that can never fit is compared with the empty cluster."""
    scene, name = after.scene, after.scene.names.__getitem__
    demand = scene.demand(scene.jobs[serial])
    hold, head = holds_of(after)[serial]
    never = hold == Hold.NEVER
    hosted = _hosted(demand, scene.cluster.empty if never else after.room)
    freed = [] if never else after.freeing(serial, after.serials)
    room_in_s = 0.0
    if hold in (Hold.ROOM, Hold.NEVER):
        room_in_s = max((after.end_s(each) for each in freed), default=math.inf)
    short = short_machines(after, serial)
    sentences = _never(after, serial) if never else _queued(after, serial, hold, "" if head is None else name(head))
    if freed:
        jobs = ", ".join(map(name, freed))
        sentences.append(f"It fits once these running jobs have ended: {jobs} (expected {_span(room_in_s)}).")
    elif hold == Hold.ROOM:
        sentences.append("It does not fit even when all running jobs have ended: machines must come up.")
    if not never:
        sentences.append(f"Its start is expected {_span(expected_wait_s)}.")
    counts = in_short(short, hosted, demand.instances, len(scene.snapshot.machines))
    return Pending(
        job_id=name(serial),
        hold=hold,
        place=0 if never else after.ranked.index(serial) + 1,
        head=None if head is None else name(head),
        instances=demand.instances,
        hosted=hosted,
        short=short,
        must_end=tuple(map(name, freed)),
        room_in_s=room_in_s,
        expected_wait_s=expected_wait_s,
        text=" ".join([*sentences, f"Now {counts}."]),
    )


def holds_of(after: Round) -> dict[int, tuple[Hold, int | None]]:
    """Return why each job waits, by serial, and the head of the queue if the reason is a rule that protects it.

    Jobs are in queue order; those that can never fit come last.
    """
    scene, rules = after.scene, after.scene.rules
    demands = [scene.demand(scene.jobs[serial]) for serial in after.ranked]
    fits = [after.hosted(demand) >= demand.instances for demand in demands]
    never: dict[int, tuple[Hold, int | None]] = dict.fromkeys(after.refused, (Hold.NEVER, None))
    if False not in fits:
        return dict.fromkeys(after.ranked, (Hold.NOTHING, None)) | never
    at, tally = fits.index(False), after.state.queue.tally[0]
    head = after.ranked[at]
    exhausted = rules.overtakes is not None and tally["head"] == head and tally["overtaken"] >= rules.overtakes
    exhausted = exhausted or rules.overtakes == 0
    easy = rules.backfill == "easy" and any(fits[at:])
    reserved_s, beside = math.inf, after.room
    if easy:
        reserved_s, spared = after.reservation(head)
        beside = after.room.within(spared)
    found: dict[int, tuple[Hold, int | None]] = {}
    for place, serial in enumerate(after.ranked):
        hold = Hold.NOTHING if fits[place] else Hold.ROOM
        if fits[place] and place > at:
            expected_s = scene.jobs[serial].run_time_s
            if exhausted:
                hold = Hold.OVERTAKES
            elif easy and place - at > rules.backfill_depth:
                hold = Hold.DEPTH
            elif easy and (math.inf if math.isnan(expected_s) else expected_s) > reserved_s:
                hold = hold if beside.fits(demands[place]) else Hold.RESERVATION
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


def short_machines(after: Round, serial: int) -> dict[str, int]:
    """Return how many machines cannot take an instance of a job now, by cause, without zeros."""
    scene, room = after.scene, after.room
    demand = scene.demand(scene.jobs[serial])
    counts = scene.excluded(scene.jobs[serial])
    counts["closed"] = int((scene.cluster.of_type(demand.gpu_type) & ~room.up).sum())
    counts |= {shortage.resource: shortage.short_machines for shortage in _shortages(demand, room)}
    return {cause: count for cause, count in counts.items() if count}


def in_short(short: Mapping[str, int], hosted: int, instances: int, machines: int) -> str:
    """Return why a gang does not fit, with counts of machines as kube-scheduler writes them."""
    fits = f"{hosted} of {instances} instances fit" if instances > 1 else "the job does not fit"
    causes = ", ".join(f"{count} of {machines} machines: {CAUSES[cause]}" for cause, count in short.items())
    return f"{fits}; {causes}" if causes else fits


def _hosted(demand: Demand, room: Room) -> int:
    return min(int(room.hosts(demand).sum()), demand.instances)


def _queued(after: Round, serial: int, hold: Hold, head: str) -> list[str]:
    """Return sentences on what a job of the queue lacks, or which rule holds it."""
    scene, room = after.scene, after.room
    demand = scene.demand(scene.jobs[serial])
    place, of_type = after.ranked.index(serial) + 1, scene.cluster.of_type(demand.gpu_type)
    sentences = [f"Job {scene.names[serial]} is number {place} of {len(after.ranked)} in the queue."]
    sentences.append(held(hold, head, _hosted(demand, room), demand.instances))
    shortages = _shortages(demand, room) if hold == Hold.ROOM else []
    sentences += [shortage.now() for shortage in _binding(shortages)]
    if shortages and all(shortage.free >= shortage.wanted for shortage in shortages):
        split = any(shortage.split for shortage in shortages)
        where = "but split over devices" if split else "but not on the same machines"
        sentences.append(f"Enough is free in total, {where}: it is fragmented.")
    if other := int((~of_type).sum()):
        sentences.append(f"Machines of another GPU type: {other}.")
    if away := int((of_type & ~room.up).sum()):
        sentences.append(f"Machines it could use that are down: {away}.")
    return sentences


def _never(after: Round, serial: int) -> list[str]:
    """Return sentences on what the empty cluster lacks for a job."""
    scene = after.scene
    demand = scene.demand(scene.jobs[serial])
    other = int((~scene.cluster.of_type(demand.gpu_type)).sum())
    whose = "all of its GPU type" if other else "the whole cluster"
    sentences = [f"Job {scene.names[serial]} can never start: it requests more than the whole empty cluster has."]
    sentences += [shortage.ever(whose) for shortage in _binding(_shortages(demand, scene.cluster.empty))]
    return [*sentences, f"Machines of another GPU type: {other}."] if other else sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shortage:
    """One requested resource compared with what is free on the machines that are up and have an allowed GPU type.

    Of the `machines` machines, `short_machines` have less free than one instance requests (`each`). `wanted` is the
    request of the whole gang, and `free` the free amount on all these machines. `binds` is true if the gang would not
    fit even if it requested only this resource. `split` is true if GPUs bind only because they are counted by device:
    pooled GPUs of each machine would suffice.
    """

    resource: str
    each: float
    wanted: float
    free: float
    short_machines: int
    machines: int
    binds: bool
    split: bool

    def now(self) -> str:
        """Return a sentence that compares the request with what is free."""
        requested = f"{WORDS[self.resource]}: an instance requests {self.each:g}"
        in_all = f"the gang requests {self.wanted:g}, and {self.free:g} are free in total"
        some = f"{self.short_machines} of {self.machines} machines"
        if not self.split:
            return f"{requested}, more than is free on {some}; {in_all}."
        if self.each > 1.0:
            return f"{requested} idle devices, and {some} have fewer; {in_all}, but split over devices."
        return f"{requested} of one device, and no device of {some} has that free; {in_all}, but split over devices."

    def ever(self, whose: str) -> str:
        """Return a sentence that compares the request with the empty machines that `whose` names."""
        too_large = ", more than any of them has" if self.short_machines == self.machines else ""
        requested = f"{WORDS[self.resource]}: an instance requests {self.each:g}{too_large}"
        return f"{requested}; the gang requests {self.wanted:g}, and {whose} has {self.free:g}."


def _shortages(demand: Demand, room: Room) -> list[_Shortage]:
    """Return the comparison of each requested resource (above 0) with the free capacity."""
    open_, found = room.open_to(demand), []
    for at, each in enumerate(demand.units):
        if each == 0:
            continue
        free = room.free[open_, at]
        pooled = hosts = free // each
        if at == GPUS and room.devices is not None:
            hosts = slots(room.devices[open_], each)
        binds = int(hosts.sum()) < demand.instances
        found.append(
            _Shortage(
                resource=RESOURCES[at],
                each=each / UNITS[at],
                wanted=each * demand.instances / UNITS[at],
                free=int(free.sum()) / UNITS[at],
                short_machines=int((hosts == 0).sum()),
                machines=int(open_.sum()),
                binds=binds,
                split=binds and int(pooled.sum()) >= demand.instances,
            )
        )
    return found


def _binding(shortages: list[_Shortage]) -> list[_Shortage]:
    """Return the resources that alone keep a gang from fitting, or all if none does."""
    return [shortage for shortage in shortages if shortage.binds] or shortages


def _span(seconds: float) -> str:
    if math.isinf(seconds):
        return "at an unknown time"
    if seconds <= 0.0:
        return "now"
    if seconds < 120.0:
        return f"in {seconds:.0f} s"
    return f"in {seconds / 60:.0f} min" if seconds < 7200.0 else f"in {seconds / 3600:.1f} h"

"""Where each waiting job of a snapshot starts now, and why there or why it waits.

One round decides; this module adds the reasons. `explain` adds what would start a waiting job.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from scheduler_core.cluster import Machine
from scheduler_core.kernels.clock import advance
from scheduler_core.placement import PLACEMENTS
from scheduler_core.round import Round, round_of
from scheduler_core.scene import Scene
from scheduler_core.snapshot import MachineState, QueuedJob, Snapshot, Spot
from scheduler_core.types import RESOURCES, Request

__all__ = ["Decision", "load_rules", "place_queue"]


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
class Decision:
    """What happens to one waiting job now: it starts on `spots`, or waits if there are none.

    `code` names the reason: the rule of the placement, or the `Hold` of a waiting job. `text` is the reason in words.
    `short` counts, for a waiting job, the machines that cannot take an instance, by cause; a machine may lack several
    resources.
    """

    job_id: str
    code: str
    text: str
    spots: tuple[Spot, ...] = ()
    short: dict[str, int] = field(default_factory=dict)


def place_queue(snapshot: Snapshot, *, compiled: bool | None = None) -> list[Decision]:
    """Decide where each waiting job starts now or why it waits, in the order of the snapshot.

    `compiled` is as in `scene.Scene`; a `BadInput` begins with the field of the snapshot that is wrong.

    Examples
    --------
    >>> from scheduler_core.cluster import Machine
    >>> from scheduler_core.snapshot import MachineState, QueuedJob
    >>> from scheduler_core.types import Request
    >>> two = [MachineState(machine=Machine(name=name, cpu_cores=8, mem_gib=64, gpus=4)) for name in ("a", "b")]
    >>> one = QueuedJob(job_id="j", request=Request(cpu_cores=1, mem_gib=1, gpus=1))
    >>> [decision] = place_queue(Snapshot(machines=tuple(two), jobs=(one,)))
    >>> decision.spots[0].machine, decision.text
    ('a', 'least free capacity')
    """
    after = round_of(Scene(snapshot, compiled=compiled))
    found = dict(zip(after.started, _starts(after), strict=True))
    found.update(_waits(after))
    return [found[serial] for serial in after.scene.jobs]


def load_rules(*, compiling: bool = True) -> bool:
    """Load the compiled rules of placements; if the cache lacks them, compile them for a minute, or return False."""
    if compiling or advance.is_ready:
        machine = MachineState(machine=Machine(name="m", cpu_cores=1, mem_gib=1, gpus=1))
        job = QueuedJob(job_id="j", request=Request(cpu_cores=1, mem_gib=1, gpus=1))
        place_queue(Snapshot(machines=(machine,), jobs=(job,)), compiled=True)
        return True
    return False


def _waits(after: Round) -> Iterator[tuple[int, Decision]]:
    """Yield by serial why each job waits; machines that lack a resource are counted after the round."""
    scene, known = after.scene, dict[Hashable, tuple[str, dict[str, int]]]()
    for serial, (hold, head) in holds_of(after).items():
        job = scene.jobs[serial]
        alike = hold, head, scene.demand(job), job.machines, job.gpu_type, job.device_mem_gib
        if alike not in known:
            known[alike] = why_waits(after, serial, hold, head)
        text, short = known[alike]
        yield serial, Decision(job_id=job.job_id, code=str(hold), text=text, short=short)


def why_waits(after: Round, serial: int, hold: Hold, head: int | None) -> tuple[str, dict[str, int]]:
    """Return why a job waits, as a sentence and as counts of machines."""
    scene, job = after.scene, after.scene.jobs[serial]
    if hold not in (Hold.ROOM, Hold.NEVER):
        return _held(hold, "" if head is None else scene.names[head]), {}
    short = _short_machines(after, serial)
    hosted = min(after.hosted(scene.demand(job)), job.instances)
    text = _in_short(short, hosted, job.instances, len(scene.snapshot.machines))
    return f"the job exceeds the empty cluster; now {text}" if hold == Hold.NEVER else text, short


def holds_of(after: Round) -> dict[int, tuple[Hold, int | None]]:
    """Return why each job waits, by serial; and the head of the queue, if a rule protects the head from the job.

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
        reserved_s, beside = after.reservation(head)
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


def _held(hold: Hold, head: str) -> str:
    """Return a sentence on why a job in the queue has not started; `head` names the head of the queue."""
    return {
        Hold.OVERTAKES: f"It would fit, but job {head} before it has been overtaken as often as allowed.",
        Hold.RESERVATION: f"It would fit, but its run would delay job {head}, which has a reservation.",
        Hold.DEPTH: f"It would fit, but is too far behind job {head} for backfill to consider it.",
        Hold.NOTHING: "It fits: the next round starts it.",
    }[hold]


def _short_machines(after: Round, serial: int) -> dict[str, int]:
    """Return how many machines cannot take an instance of a job now, by cause, without zeros."""
    scene, room = after.scene, after.room
    demand = replace(scene.demand(scene.jobs[serial]), instances=1)
    counts = scene.excluded(scene.jobs[serial])
    counts["closed"] = int((scene.cluster.of_type(demand.gpu_type) & ~room.up).sum())
    machines = int(room.open_to(demand).sum())
    for at, name in enumerate(RESOURCES):
        cpu, mem, gpus = (units * (at == place) for place, units in enumerate(demand.units))
        counts[name] = machines - int(room.hosts(replace(demand, units=(cpu, mem, gpus))).sum())
    return {cause: count for cause, count in counts.items() if count}


def _in_short(short: Mapping[str, int], hosted: int, instances: int, machines: int) -> str:
    """Return why a gang does not fit, with counts of machines as kube-scheduler writes them."""
    fits = f"{hosted} of {instances} instances fit" if instances > 1 else "the job does not fit"
    causes = ", ".join(f"{count} of {machines} machines: {CAUSES[cause]}" for cause, count in short.items())
    return f"{fits}; {causes}" if causes else fits


def _starts(after: Round) -> Iterator[Decision]:
    """Yield why each job starts where it does."""
    names, placement = [state.machine.name for state in after.scene.snapshot.machines], after.scene.rules.placement
    code, text = PLACEMENTS[placement].rule, PLACEMENTS[placement].words
    for serial in after.started:
        taken = after.taken(serial)
        spots = tuple(Spot(machine=names[at], instances=count, devices=devices) for at, count, devices in taken)
        yield Decision(job_id=after.scene.names[serial], code=code, text=text, spots=spots)

"""Where each waiting job of a snapshot starts now, and why there or why it waits.

One round decides; this module adds the reasons. `changes` explains waiting jobs in full.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from scheduler_core.cluster import Allocation, Room
from scheduler_core.devices import WHOLE
from scheduler_core.fragmentation import cluster_fragmentation, free_nodes
from scheduler_core.pending import GPUS, Hold, held, holds_of, in_short, short_machines
from scheduler_core.placement import PLACEMENTS
from scheduler_core.round import Round, round_of
from scheduler_core.scene import Scene
from scheduler_core.snapshot import Snapshot, Spot
from scheduler_core.target import TargetWorkload

__all__ = ["Decision", "place_queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What happens to one waiting job now: it starts on `spots`, or waits if there are none.

    `code` names the reason: a rule of the placement, `only_room` if the job fits nowhere else, or the `Hold` of a
    waiting job. `text` is the reason as a sentence. `measure` names the figure by which the placement chose: `value`
    for the chosen machines, `other_value` for the best other machine, `other`. `short` counts, for a waiting job, the
    machines that cannot take an instance, by cause; a machine may lack several resources.
    """

    job_id: str
    code: str
    text: str
    spots: tuple[Spot, ...] = ()
    measure: str | None = None
    value: float | None = None
    other: str | None = None
    other_value: float | None = None
    short: dict[str, int] = field(default_factory=dict)


def place_queue(snapshot: Snapshot) -> list[Decision]:
    """Decide for each waiting job, in the order of the snapshot, where it starts now or why it waits.

    A `BadInput` begins with the field of the snapshot that is wrong; see `scene.Scene`.

    Examples
    --------
    >>> from scheduler_core.cluster import Machine
    >>> from scheduler_core.snapshot import MachineState, QueuedJob
    >>> from scheduler_core.types import Request
    >>> two = [MachineState(machine=Machine(name=name, cpu_cores=8, mem_gib=64, gpus=4)) for name in ("a", "b")]
    >>> one = QueuedJob(job_id="j", request=Request(cpu_cores=1, mem_gib=1, gpus=1))
    >>> [decision] = place_queue(Snapshot(machines=tuple(two), jobs=(one,)))
    >>> decision.spots[0].machine, decision.text
    ('a', 'least free capacity: 3 on a, 3 on the next best, b')
    """
    after = round_of(Scene(snapshot))
    holds, found = holds_of(after), dict[int, Decision]()
    started = {serial: after.allocation(serial) for serial in after.started}
    room = after.room.with_(started.values())
    for serial, allocation in started.items():
        found[serial] = _starts(after, serial, allocation, room)
        room = room.without([allocation])
    return [found[serial] if serial in found else _waits(after, serial, *holds[serial]) for serial in after.scene.jobs]


def _waits(after: Round, serial: int, hold: Hold, head: int | None) -> Decision:
    """Return why a job waits; what it lacks is counted on the machines as they are after the round."""
    scene, job = after.scene, after.scene.jobs[serial]
    if hold in (Hold.ROOM, Hold.NEVER):
        short = short_machines(after, serial)
        hosted = int(after.room.hosts(scene.demand(job)).sum())
        text = in_short(short, min(hosted, job.instances), job.instances, len(scene.snapshot.machines))
        if hold == Hold.NEVER:
            text = f"the job exceeds the empty cluster; now {text}"
        return Decision(job_id=job.job_id, code=str(hold), text=text, short=short)
    text = held(hold, "" if head is None else scene.names[head], job.instances, job.instances)
    return Decision(job_id=job.job_id, code=str(hold), text=text)


def _starts(after: Round, serial: int, allocation: Allocation, room: Room) -> Decision:
    """Return why a job starts where it does, against what the placement chooses without these machines."""
    scene = after.scene
    spots = scene.spots(allocation)
    where = spots[0].machine if len(spots) == 1 else f"{len(spots)} machines"
    found = partial(Decision, job_id=scene.names[serial], spots=spots)
    other = after.elsewhere(serial, room, [machine for machine, _ in allocation.counts])
    if other is None:
        return found(code="only_room", text=f"no room elsewhere than on {where}")
    placement = PLACEMENTS[scene.rules.placement]
    measure = placement.measure
    beside = [spot.machine for spot in scene.spots(other)]
    next_best = beside[0] if len(beside) == 1 else f"{len(beside)} machines with {beside[0]}"
    if measure is None:
        return found(code=placement.rule, text=f"{placement.words}; the next best is {next_best}", other=beside[0])
    value, other_value = (MEASURES[measure](each, room, scene.target) for each in (allocation, other))
    sign, unit = ("+", " unusable GPUs") if measure == "unusable_gpus" else ("", "")
    text = (
        f"{placement.words}: {value:{sign}.3g}{unit} on {where}, {other_value:{sign}.3g} on the next best, {next_best}"
    )
    return found(code=placement.rule, text=text, measure=measure, value=value, other=beside[0], other_value=other_value)


def _free_capacity(allocation: Allocation, room: Room, _: TargetWorkload) -> float:
    """Return the mean `Room.freeness` of the machines of an allocation."""
    chosen = replace(room, free=room.free[[machine for machine, _ in allocation.counts]])
    return float(chosen.freeness().mean())


def _left_over(allocation: Allocation, room: Room, _: TargetWorkload) -> float:
    """Return the mean CPU and GPU left over on the machines of an allocation, as shares of the largest machine."""
    after = room.without([allocation]).free / room.largest
    return float(after[[machine for machine, _ in allocation.counts]][:, [0, GPUS]].sum(axis=1).mean())


def _unusable_gpus(allocation: Allocation, room: Room, target: TargetWorkload) -> float:
    """Return how many more free GPUs the jobs of the target could not use on average after an allocation."""
    at = [machine for machine, _ in allocation.counts]
    before, after = (cluster_fragmentation(free_nodes(each, at), target) for each in (room, room.without([allocation])))
    return (after - before) / WHOLE


MEASURES: Final[dict[str, Callable[[Allocation, Room, TargetWorkload], float]]] = {
    "free_capacity": _free_capacity,
    "left_over": _left_over,
    "unusable_gpus": _unusable_gpus,
}
"""Figures of an allocation: free capacity of its machines before it, CPU and GPU left over, and fragmentation."""

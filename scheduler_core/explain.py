"""Why jobs of a snapshot wait, and which single changes would start a job now.

Every change is tried: the round is run again with it, and it is kept only if the job starts.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.cluster import ALTERNATIVES, UNIT_SLACK, UNITS, Demand
from scheduler_core.decisions import Hold, holds_of, why_waits
from scheduler_core.errors import BadInput
from scheduler_core.gangs import GPUS, WHOLE
from scheduler_core.round import Round, round_of
from scheduler_core.scene import Scene
from scheduler_core.snapshot import QueuedJob, Snapshot
from scheduler_core.types import RESOURCES

__all__ = ["Change", "Explained", "explain_waiting"]

MOST_CUT: Final = 0.9
"""Largest part of a request that a change takes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a job's request or constraints with which it would start now; `field` names what changes."""

    field: str
    job: QueuedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why a job waits, also as `text` for the user, when it should start, and what would let it start now.

    - `place`: position of the job in the queue, from 1; 0 for a job that can never fit and so is not queued.
    - `head`: head of the queue, if `hold` is a rule that protects it.
    - `instances`, `hosted`: number of instances in the gang, and how many of them would fit now; of a job that can
      never fit, how many would fit the empty cluster.
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
    changes: tuple[Change, ...]


def explain_waiting(snapshot: Snapshot, job_ids: Sequence[str] | None, most: int) -> list[Explained]:
    """Explain why jobs wait after the next round; `job_ids` None: the first `most` waiting jobs in queue order.

    Jobs that can never fit come after the queue; jobs that the next round starts are left out. A `BadInput` begins with
    the field of the snapshot or of `job_ids` that is wrong.
    """
    scene = Scene(snapshot)
    serials = {scene.names[serial]: serial for serial in scene.jobs}
    for at, name in enumerate(job_ids or ()):
        if name not in serials:
            raise BadInput(f"explain.{at}: found {name[:40]!r}, expected the id of a job in `jobs`")
    after = round_of(scene)
    waiting = after.ranked + after.refused
    chosen = waiting[:most] if job_ids is None else [serials[name] for name in job_ids if serials[name] in set(waiting)]
    starts_s, holds = after.expected_starts_s(chosen), holds_of(after)
    return [_explained(after, serial, *holds[serial], starts_s[serial]) for serial in chosen]


def _explained(after: Round, serial: int, hold: Hold, head: int | None, expected_wait_s: float) -> Explained:
    """Return why a job waits after the round, and what would start it."""
    scene, name, never = after.scene, after.scene.names.__getitem__, hold == Hold.NEVER
    demand = scene.demand(scene.jobs[serial])
    freed = [] if never else after.freeing(serial)
    room_in_s = 0.0
    if hold in (Hold.ROOM, Hold.NEVER):
        room_in_s = max((after.end_s(each) for each in freed), default=math.inf)
    text, short = why_waits(after, serial, hold, head)
    place = 0 if never else after.ranked.index(serial) + 1
    whole = "can never start" if never else f"is number {place} of {len(after.ranked)} in the queue"
    sentences = [f"Job {name(serial)} {whole}: {text.rstrip('.')}."]
    if hold == Hold.ROOM:
        sentences += _until_room(after, demand, freed, room_in_s)
    if not never:
        sentences.append(f"Its start is expected {_span(expected_wait_s)}.")
    return Explained(
        job_id=name(serial),
        hold=hold,
        place=place,
        head=None if head is None else name(head),
        instances=demand.instances,
        hosted=min(int((scene.cluster.empty if never else after.room).hosts(demand).sum()), demand.instances),
        short=short,
        must_end=tuple(map(name, freed)),
        room_in_s=room_in_s,
        expected_wait_s=expected_wait_s,
        text=" ".join(sentences),
        changes=tuple(_changes(after, serial)),
    )


def _until_room(after: Round, demand: Demand, freed: Sequence[int], room_in_s: float) -> list[str]:
    """Return sentences on what has to happen until a gang fits."""
    free = after.room.free[after.room.open_to(demand)].sum(axis=0)
    enough = (free >= np.array(demand.units) * demand.instances).all()
    sentences = ["Enough is free in total, but not on the same machines or devices: it is fragmented."] * bool(enough)
    if not freed:
        return [*sentences, "It does not fit even when all running jobs have ended: machines must come up."]
    jobs = ", ".join(after.scene.names[each] for each in freed)
    return [*sentences, f"It fits once these running jobs have ended: {jobs} (expected {_span(room_in_s)})."]


def _span(seconds: float) -> str:
    if math.isinf(seconds):
        return "at an unknown time"
    if seconds <= 0.0:
        return "now"
    if seconds < 120.0:
        return f"in {seconds:.0f} s"
    return f"in {seconds / 60:.0f} min" if seconds < 7200.0 else f"in {seconds / 3600:.1f} h"


def _changes(after: Round, serial: int) -> Iterator[Change]:
    """Yield the changes that start a job now; each was tried at the job's turn, before the jobs behind it started."""
    scene = after.scene
    job = scene.jobs[serial]
    behind = [each for each in after.started if after.order(each) > after.order(serial)]
    room = after.room.with_([after.allocation(each) for each in behind])

    def fits(changed: QueuedJob) -> bool:
        return room.fits(scene.demand(changed))

    less = [_least_cut(job, at, fits, by_device=room.devices is not None) for at in range(len(RESOURCES))]
    requests = [(field, cut) for field, cut in zip(RESOURCES, less, strict=True) if cut is not None]
    hosted = int(room.hosts(scene.demand(job)).sum())
    fewer = [("instances", replace(job, instances=hosted))] if 0 < hosted < job.instances else []
    for field, changed in (*requests, *fewer, *_relaxed(scene, job, fits)):
        if fits(changed) and serial in round_of(scene, {serial: changed}).started:
            yield Change(field=field, job=changed)


def _least_cut(job: QueuedJob, at: int, fits: Callable[[QueuedJob], bool], *, by_device: bool) -> QueuedJob | None:
    """Return the job with less of one resource, as much as still fits; None if no smaller amount fits."""
    steps = _steps(job.request.row()[at], at, by_device=by_device)

    def asking(step: int) -> QueuedJob:
        return replace(job, request=replace(job.request, **{RESOURCES[at]: step / UNITS[at]}))

    for tried in steps:
        if not tried or not fits(asking(tried[0])):
            continue
        low, high = 0, len(tried)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(asking(tried[middle])) else (low, middle)
        return asking(tried[low])
    return None


def _steps(asked: float, at: int, *, by_device: bool) -> tuple[range, ...]:
    """Return the smaller amounts of a resource that are tried, in the units of a cluster; later ranges are smaller.

    Above one GPU, numbers are whole. A part of a GPU is tried only if GPUs are shared by device, or if the job requests
    a part.
    """
    if not asked > 0.0:
        return ()
    most = math.ceil(asked * UNITS[at] - UNIT_SLACK) - 1
    least = max(math.ceil(asked * UNITS[at] * (1.0 - MOST_CUT)), 1)
    if at != GPUS:
        return (range(least, most + 1),)
    parts = range(least, min(most, WHOLE - 1) + 1) if by_device or asked < 1.0 else range(0)
    return range(-(-least // WHOLE) * WHOLE, most + 1, WHOLE), parts


def _relaxed(scene: Scene, job: QueuedJob, fits: Callable[[QueuedJob], bool]) -> Iterator[tuple[str, QueuedJob]]:
    """Yield copies of the job, each with one constraint relaxed, and the name of that constraint.

    - `gpu_type`: another type of the cluster in place of the job's own. A gang that does not fit on that type alone may
      use its own types too.
    - `machines`: any machine.
    - `device_mem_gib`: the largest smaller GPU memory that fits. GPUs of unknown memory count as 0.
    """
    states = scene.snapshot.machines
    if job.gpu_type is not None:
        types = {state.machine.gpu_type for state in states if state.machine.gpu_type}
        for gpu_type in sorted(types - set(job.gpu_type.split(ALTERNATIVES))):
            alone = replace(job, gpu_type=gpu_type)
            beside = replace(job, gpu_type=f"{job.gpu_type}{ALTERNATIVES}{gpu_type}")
            yield "gpu_type", beside if job.instances > 1 and not fits(alone) else alone
    if job.machines:
        yield "machines", replace(job, machines=())
    known = {0.0 if math.isnan(state.device_mem_gib) else state.device_mem_gib for state in states}
    smaller = [replace(job, device_mem_gib=mem) for mem in sorted(known, reverse=True) if mem < job.device_mem_gib]
    at = bisect_left(smaller, True, key=fits)
    if at < len(smaller):
        yield "device_mem_gib", smaller[at]

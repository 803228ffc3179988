"""Calls for modes and brakes: set and read whether recommendations are applied or stopped, and read what they saved.

The effect of modes and brakes on a recommendation is in `modelserve.calls.recommendations`. Called by the service.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Final

from modelserve.callers import Caller
from modelserve.contract.fields import Mode
from modelserve.contract.learning import (
    BrakeHeld,
    Hours,
    ModeAnswer,
    ModeChange,
    ModeHeld,
    NotApplied,
    Realised,
    Stretch,
)
from modelserve.contract.requests import ModeBody
from modelserve.errors import BadRequest
from modelserve.learning.applied import Foregone, foregone_of
from modelserve.learning.feed import Feed
from modelserve.learning.learned import Learned, Place, Stop
from modelserve.store import Store
from modelserve.store.controls import ModeSet, Reset, write_control
from modelserve.store.realised import RESOURCES, Ran, Totals, newest_ran, totals

__all__ = ["read_modes", "set_mode"]

RECENT_JOBS: Final = 10_000
"""Number of newest finished jobs from which `Stretch` and `NotApplied` are computed."""


def set_mode(
    store: Store,
    feed: Feed,
    body: ModeBody,
    caller: Caller,
    *,
    champions: Collection[str],
    default_trace: str | None,
    at: float,
) -> ModeChange:
    """Set a mode, remove a mode or release brakes; return the new state, and what was replaced or released.

    `champions` are the names of the models that serve; a mode for which none of them serves is noted.

    A caller bound to clusters must name one of them, since a mode of the whole trace affects all clusters.

    Raises
    ------
    BadRequest
        The call names no trace, and there is no default; or it names nothing at all and would enforce everything.
    Forbidden
        The caller may not access the trace or the cluster.
    StoreError
        The store is unavailable; nothing was changed.
    """
    trace = body.trace or default_trace
    if trace is None:
        raise BadRequest("trace: found none, expected one in the call or in TAUT_SERVE_TRACE")
    caller.check_reach(trace, body.cluster, field="mode")
    if body.mode == "enforce" and not any((body.trace, body.cluster, body.task_type, body.group)):
        raise BadRequest(
            f"mode: found enforce without a scope, which covers every job of {trace}; expected a cluster, task_type or "
            f"group, or trace {trace} by name"
        )
    before = feed.fresh()
    change = _change(body, trace, caller=caller.name, at=at)
    write_control(store, change)
    feed.poll()
    now = read_modes(store, feed, caller)
    return ModeChange(
        **dict(now),
        replaced=_replaced(before, change),
        released=_released(before, change),
        note=_note(change, champions),
    )


def _note(change: ModeSet | Reset, champions: Collection[str]) -> str | None:
    """Return that no model serves the trace or task type of a mode that was set, or None."""
    if isinstance(change, Reset) or not change.mode:
        return None
    types = [name.rpartition(".")[2] for name in champions if name.split(".")[1] == change.trace]
    if not types:
        return f"no model serves the trace {change.trace} now"
    if change.task_type and change.task_type not in types:
        return f"no model serves the task type {change.task_type} of the trace {change.trace} now"
    return None


def _change(body: ModeBody, trace: str, *, caller: str, at: float) -> ModeSet | Reset:
    cluster, task_type = body.cluster or "", body.task_type or ""
    if body.reset:
        return Reset(trace=trace, cluster=cluster, task_type=task_type, caller=caller, at=at)
    return ModeSet(
        trace=trace, cluster=cluster, task_type=task_type, group=body.group or "", mode=body.mode or "",
        caller=caller, at=at,
    )  # fmt: skip


def _replaced(before: Learned, change: ModeSet | Reset) -> tuple[ModeHeld, ...]:
    if isinstance(change, Reset) or change.place not in before.modes:
        return ()
    return (_mode_held(change.place, before.modes[change.place]),)


def _released(before: Learned, change: ModeSet | Reset) -> tuple[BrakeHeld, ...]:
    if isinstance(change, ModeSet):
        return ()
    return tuple(_brake_held(*each) for each in sorted(before.brakes.items()) if change.releases(*each[0]))


def _mode_held(place: Place, mode: Mode) -> ModeHeld:
    trace, cluster, kind, group = place
    return ModeHeld(trace=trace, cluster=cluster or None, task_type=kind or None, group=group or None, mode=mode)


def _brake_held(place: tuple[str, str, str], stop: Stop) -> BrakeHeld:
    trace, cluster, task_type = place
    since = datetime.fromtimestamp(stop.since, UTC)
    return BrakeHeld(trace=trace, cluster=cluster or None, task_type=task_type, why=stop.why, since=since)


def read_modes(store: Store, feed: Feed, caller: Caller) -> ModeAnswer:
    """Return the modes and brakes that the caller may see, and the savings computed from feedback.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    learned = feed.fresh()
    ran = newest_ran(store, traces=caller.traces, clusters=caller.clusters, limit=RECENT_JOBS)
    foregone = foregone_of(store, ran)
    summed = totals(store, traces=caller.traces, clusters=caller.clusters)
    return ModeAnswer(
        default=learned.default,
        modes=tuple(
            _mode_held(place, mode)
            for place, mode in sorted(learned.modes.items())
            if caller.reaches(place[0], place[1] or None)
        ),
        brakes=tuple(
            _brake_held(place, stop)
            for place, stop in sorted(learned.brakes.items())
            if caller.reaches(place[0], place[1])
        ),
        realised=tuple(_realised(each, ran, foregone) for each in summed),
    )


def _realised(each: Totals, ran: Sequence[Ran], foregone: Sequence[Foregone]) -> Realised:
    mine = [job for job in ran if (job.trace, job.task_type) == (each.trace, each.task_type)]
    missed = [job for job in foregone if (job.trace, job.task_type) == (each.trace, each.task_type)]
    return Realised(
        trace=each.trace,
        task_type=each.task_type,
        jobs=each.jobs,
        shrunk_jobs=each.shrunk,
        kills=each.kills,
        kill_rate=each.kills / each.shrunk if each.shrunk else None,
        hours={
            resource: Hours(
                asked=each.asked_hours[resource],
                allocated=each.allocated_hours[resource],
                saved=each.asked_hours[resource] - each.allocated_hours[resource],
            )
            for resource in RESOURCES
        },
        stretch=_stretch(mine),
        not_applied=NotApplied(
            jobs=len(missed),
            hours={resource: sum(job.hours[i] for job in missed) for i, resource in enumerate(RESOURCES)},
        ),
    )


def _stretch(ran: Sequence[Ran]) -> Stretch:
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for job in ran:
        if job.outcome == "completed" and job.p50_s:
            ratios[job.shrunk].append(job.run_s / job.p50_s)
    shrunk, unshrunk = (median(ratios[kind]) if ratios[kind] else None for kind in (True, False))
    return Stretch(
        shrunk=shrunk,
        unshrunk=unshrunk,
        ratio=shrunk / unshrunk if shrunk is not None and unshrunk else None,
        shrunk_jobs=len(ratios[True]),
        unshrunk_jobs=len(ratios[False]),
    )

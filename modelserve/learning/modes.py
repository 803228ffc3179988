"""Modes and brakes: set and read whether recommendations are applied or stopped, and what they saved."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Final

from modelserve.callers import Caller
from modelserve.contract.feedback import BrakeHeld, Hours, ModeAnswer, ModeChange, ModeHeld, Realised
from modelserve.contract.fields import Mode
from modelserve.contract.requests import ModeBody
from modelserve.errors import BadRequest
from modelserve.learning.feed import Feed
from modelserve.learning.learned import Place, Stop
from modelserve.store import Store
from modelserve.store.changes import ModeSet, Reset, write_control
from modelserve.store.finished import RESOURCES, Stored, totals

__all__ = ["brakes_held", "read_modes", "set_mode"]

NO_BRAKE: Final = "no brake was held there, check the names; harm before now no longer counts"


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
    stops = before.brakes.values()
    change = _change(body, trace, caller=caller.name, at=at)
    old = before.modes.get(change.place) if isinstance(change, ModeSet) else None
    write_control(store, change)
    feed.poll()
    now = read_modes(store, feed, caller)
    released = [stop for stop in stops if isinstance(change, Reset) and change.releases(*stop.scope)]
    return ModeChange(
        **dict(now),
        replaced=(_mode_held(change.place, old),) if isinstance(change, ModeSet) and old is not None else (),
        released=brakes_held(released),
        note=NO_BRAKE if isinstance(change, Reset) and not released else _note(change, champions),
    )


def _note(change: ModeSet | Reset, champions: Collection[str]) -> str | None:
    """Return a note if no model serves the trace or task type of a mode that was set, else None."""
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
        return Reset(
            trace=trace, cluster=cluster, task_type=task_type, user=body.user or "", group=body.group or "",
            caller=caller, at=at,
        )  # fmt: skip
    return ModeSet(
        trace=trace, cluster=cluster, task_type=task_type, group=body.group or "", mode=body.mode or "",
        caller=caller, at=at,
    )  # fmt: skip


def _mode_held(place: Place, mode: Mode) -> ModeHeld:
    trace, cluster, kind, group = place
    return ModeHeld(trace=trace, cluster=cluster or None, task_type=kind or None, group=group or None, mode=mode)


def brakes_held(stops: Iterable[Stop]) -> tuple[BrakeHeld, ...]:
    """Return brakes as in responses, ordered by scope."""
    return tuple(
        BrakeHeld(
            trace=stop.scope[0],
            cluster=stop.scope[1] or None,
            task_type=stop.scope[2],
            user=stop.scope[3] or None,
            group=stop.scope[4] or None,
            why=stop.why,
            since=datetime.fromtimestamp(stop.since, UTC),
        )
        for stop in sorted(stops, key=lambda stop: stop.scope)
    )


def read_modes(store: Store, feed: Feed, caller: Caller) -> ModeAnswer:
    """Return the modes and brakes that the caller may see, and the savings computed from feedback."""
    learned = feed.fresh()
    summed = totals(store, traces=caller.traces, clusters=caller.clusters)
    return ModeAnswer(
        default=learned.default,
        modes=tuple(
            _mode_held(place, mode)
            for place, mode in sorted(learned.modes.items())
            if caller.reaches(place[0], place[1] or None)
        ),
        brakes=brakes_held(stop for stop in learned.brakes.values() if caller.reaches(*stop.scope[:2])),
        realised=tuple(_realised(each) for each in summed),
    )


def _realised(each: Stored) -> Realised:
    return Realised(
        trace=each.trace,
        task_type=each.task_type,
        jobs=each.jobs,
        shrunk_jobs=int(each.shrunk),
        kills=int(each.kills),
        kill_rate=int(each.kills) / int(each.shrunk) if each.shrunk else None,
        hours={
            name: Hours(asked=asked, allocated=given, saved=asked - given)
            for name in RESOURCES
            for asked, given in [(getattr(each, f"req_{name}"), getattr(each, f"alloc_{name}"))]
        },
    )

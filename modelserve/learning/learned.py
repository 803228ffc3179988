"""State learnt from feedback: modes, brakes on task types, and memory floors above allocations that were killed.

Nothing is written; the rules for one job are `modelserve.contract.feedback_rules`. Built by `modelserve.learning.feed`,
looked up by `modelserve.calls`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np

from modelserve.contract.feedback_rules import is_below, shrunk_resources
from modelserve.contract.fields import Mode
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.controls import Brake, ModeSet, Reset, controls_between
from modelserve.store.finished import OOM, Finished, Outcome, outcomes_between

__all__ = ["Learned"]

OOM_MARGIN: Final = 1.2
"""Ratio of a memory floor to the allocation that was killed. A kill shows that the peak is higher, not by how much;
widely used autoscalers also raise memory by a fifth after a kill."""
CALM_RUNS: Final = 20
"""Later unshrunk, measured runs of similar jobs (same group or user, and role) that must all stay below the killed
allocation before the floor is removed."""

Place = tuple[str, str, str, str]
"""Trace, cluster, task type, group; an empty text means all."""
Key = tuple[str, str, str, str, str]
"""Trace, cluster, kind of owner (`group` or `user`), its name, role."""

EVERY = ""
"""In a place or key: all clusters, types or groups; as a job's cluster: none was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why jobs of a type are currently not shrunk, and since when: Unix time of the report that exceeded the limit.

    >>> str(Stop(why="5 of the last 200 were killed", since=1596274200.0))
    '5 of the last 200 were killed; since 2020-08-01T09:30:00Z'
    """

    why: str
    since: float

    def __str__(self) -> str:
        return f"{self.why}; since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The learnt state at one moment; `seq` is the number of the latest change in it.

    For a job without a cluster, the strictest state of all clusters holds (callers bound to clusters must name one).
    Decisions and reports without a cluster hold for all clusters.
    """

    default: Mode = "observe"
    modes: Mapping[Place, Mode] = field(default_factory=dict)
    brakes: Mapping[tuple[str, str, str], Stop] = field(default_factory=dict)
    floors: Mapping[Key, float] = field(default_factory=dict)
    seq: int = 0

    def mode(self, trace: str, task_type: str, group: str | None, cluster: str | None = None) -> Mode:
        """Return the mode of a job: its group's, else its type's, else its trace's, else the settings'.

        At each level, a mode set for the job's cluster goes before one set for all clusters.

        >>> learned = Learned(modes={("pai", "", "", ""): "enforce", ("pai", "", "", "g3"): "observe"})
        >>> learned.mode("pai", "ctr", "g3"), learned.mode("pai", "ctr", "g4"), learned.mode("philly", "other", None)
        ('observe', 'enforce', 'observe')
        """
        if not self.modes:
            return self.default
        clusters = (EVERY,) if cluster is None else (cluster, EVERY)
        groups = () if group is None else ((task_type, group), (EVERY, group))
        for kind, of in (*groups, (task_type, EVERY), (EVERY, EVERY)):
            for each in clusters:
                found = self.modes.get((trace, each, kind, of))
                if found is not None:
                    return found
        return self.default

    def braked(self, trace: str, task_type: str, cluster: str | None = None) -> Stop | None:
        """Return why jobs of this type are currently not shrunk, or None if they may be."""
        if not self.brakes:
            return None
        if cluster is not None:
            return self.brakes.get((trace, cluster, task_type)) or self.brakes.get((trace, EVERY, task_type))
        return next((stop for (t, _, kind), stop in self.brakes.items() if (t, kind) == (trace, task_type)), None)

    def memory_floor_gib(
        self, trace: str, cluster: str | None, group: str | None, role: str, user: str | None = None
    ) -> float:
        """Return the memory, with margin, below which similar jobs were killed; NaN if none was.

        Similar jobs share group and role; for a job without a group, user and role (and also have no group).
        """
        if not self.floors:
            return np.nan
        whose, name = ("user", user) if group is None else ("group", group)
        if name is None:
            return np.nan
        if cluster is None:
            found = [gib for (t, _, *rest), gib in self.floors.items() if (t, *rest) == (trace, whose, name, role)]
        else:
            held = (self.floors.get((trace, each, whose, name, role)) for each in (cluster, EVERY))
            found = [gib for gib in held if gib is not None]
        return max(found, default=np.nan)


@dataclass(slots=True, kw_only=True)
class _Floor:
    floor_gib: float
    killed_gib: float
    calm: int = 0


@dataclass(slots=True, kw_only=True)
class FeedbackState:
    """The modes, brakes and memory floors after the changes applied so far; `frozen()` returns a copy to look up."""

    settings: ServeSettings
    modes: dict[Place, Mode] = field(default_factory=dict)
    brakes: dict[tuple[str, str, str], Stop] = field(default_factory=dict)
    unwritten: dict[tuple[str, str, str], Stop] = field(default_factory=dict)
    seq: int = 0
    _windows: dict[tuple[str, str, str], deque[bool]] = field(default_factory=dict)
    _floors: dict[Key, _Floor] = field(default_factory=dict)

    def frozen(self) -> Learned:
        """Return the current state as an immutable look-up."""
        return Learned(
            default=self.settings.mode,
            modes=dict(self.modes),
            brakes=dict(self.brakes),
            floors={key: each.floor_gib for key, each in self._floors.items()},
            seq=self.seq,
        )

    def set_mode(self, change: ModeSet) -> None:
        """Set the mode of a place, or remove it."""
        if change.mode:
            self.modes[change.place] = "enforce" if change.mode == "enforce" else "observe"
        else:
            self.modes.pop(change.place, None)

    def brake(self, change: Brake) -> None:
        """Apply a brake that a worker has written to the store."""
        key = (change.trace, change.cluster, change.task_type)
        self.brakes[key] = Stop(why=change.why, since=change.at)
        self.unwritten.pop(key, None)

    def reset(self, change: Reset) -> None:
        """Release a brake and restart its count of kills."""
        for key in [*self.brakes, *self._windows]:
            if change.releases(*key):
                self.brakes.pop(key, None)
                self.unwritten.pop(key, None)
                self._windows.pop(key, None)

    def finish(self, row: Finished | Outcome) -> None:
        """Update kill counts and floors from one finished job."""
        self._count_kill(row)
        self._move_floor(row)

    def _count_kill(self, row: Finished | Outcome) -> None:
        if not shrunk_resources(row):
            return
        key = (row.trace, row.cluster, row.task_type)
        window = self._windows.setdefault(key, deque(maxlen=self.settings.kill_window))
        window.append(row.outcome == OOM)
        kills = sum(window) if row.outcome == OOM else 0
        limit = self.settings.kill_limit_frac
        if kills >= self.settings.kill_least and kills > limit * len(window) and key not in self.brakes:
            why = f"{kills} of the last {len(window)} shrunk jobs were killed for memory, expected at most {limit:.2%}"
            self.brakes[key] = self.unwritten[key] = Stop(why=why, since=row.at)

    def _move_floor(self, row: Finished | Outcome) -> None:
        whose, name = ("user", row.user) if row.group is None else ("group", row.group)
        if name is None:
            return
        key = (row.trace, row.cluster, whose, name, row.role)
        if row.outcome == OOM:
            # Fall back to peak use if the allocation is unknown.
            killed = row.mem_max_gib if row.alloc_mem_gib is None else row.alloc_mem_gib
            if killed is not None:
                known = self._floors.get(key) or _Floor(floor_gib=0.0, killed_gib=0.0)
                higher = max(known.killed_gib, killed)
                self._floors[key] = _Floor(floor_gib=higher * OOM_MARGIN, killed_gib=higher)
            return
        floor = self._floors.get(key)
        if floor is None or row.mem_max_gib is None or is_below(row.alloc_mem_gib, row.req_mem_gib):
            return
        if row.mem_max_gib >= floor.killed_gib:
            self._floors[key] = replace(floor, calm=0)
        elif floor.calm + 1 >= CALM_RUNS:
            del self._floors[key]
        else:
            self._floors[key] = replace(floor, calm=floor.calm + 1)


def state_of(store: Store, settings: ServeSettings, upto: int) -> FeedbackState:
    """Return the state after all stored changes up to number `upto`.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    state = FeedbackState(settings=settings, seq=upto)
    controls: list[ModeSet | Reset | Brake] = [
        *controls_between(store, ModeSet, 0, upto),
        *controls_between(store, Reset, 0, upto),
        *controls_between(store, Brake, 0, upto),
    ]
    controls.sort(key=lambda change: change.seq, reverse=True)
    for outcome in outcomes_between(store, 0, upto):
        while controls and controls[-1].seq < outcome.seq:
            apply(state, controls.pop())
        state.finish(outcome)
    while controls:
        apply(state, controls.pop())
    return state


def apply(state: FeedbackState, change: Finished | Outcome | ModeSet | Reset | Brake) -> None:
    """Apply one change to the state."""
    if isinstance(change, ModeSet):
        state.set_mode(change)
    elif isinstance(change, Reset):
        state.reset(change)
    elif isinstance(change, Brake):
        state.brake(change)
    else:
        state.finish(change)

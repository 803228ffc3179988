"""The learnt state: modes that were set, brakes after harm to shrunk jobs, and memory floors after kills.

A floor is a minimum of memory for jobs similar to one that ran out of memory: at least its original request if it was
shrunk, and more than its allocation. A brake stops the shrinking of a group, a user or a task type in one cluster. The
rules for a single job are in `modelserve.contract.feedback_rules`.

Bounded reports set no brake, and never lower a floor of believed reports. Each of their kills sets a separate floor.
Bounded runs lower it by at most a tenth a day, and a believed report of the same job ends it.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

import numpy as np

from modelserve.amounts import is_below
from modelserve.contract.feedback_rules import is_mixed_up, shrunk_resources
from modelserve.contract.fields import Mode
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.changes import Brake, Change, ModeSet, Reset, changes_between
from modelserve.store.finished import BELIEVED, OOM, Outcome

__all__ = ["Learned"]

OOM_MARGIN: Final = 1.2
"""Ratio of a memory floor to the allocation with which a job was killed.

A kill shows that the job's peak is above its allocation, but not how far. Widely used autoscalers also raise memory by
a fifth after a kill.
"""
CALM_RUNS: Final = 20
"""Number of consecutive runs with a peak below the killed allocation after which a memory floor is removed.

Only measured runs whose memory was not shrunk count, of the same group (or user) and role.
"""
DAY_S: Final = 86_400.0
FALL: Final = 0.9
"""Ratio by which `CALM_RUNS` runs in bounded reports lower a floor of such reports, at most once in `DAY_S`."""
BOUNDED_FLOORS: Final = 20
"""Maximum number of floors of a group (or user) and role by bounded reports; the lowest is dropped."""
BROKEN_S: Final = 60.0
"""Run time below which a failed job may have been broken by its allocation: Slurm refuses steps that ask for more."""
LATE: Final = 3.0
"""Ratio of a run time to the upper quantile of its forecast above which a job ran well above it."""

K = TypeVar("K")
Place = tuple[str, str, str, str]
"""Trace, cluster, task type and group to which a mode applies; an empty text means all."""
Key = tuple[str, str, str, str, str]
"""Key of a memory floor: trace, cluster, `group` or `user`, the name of that group or user, and role."""

EVERY = ""
"""Empty name. In a `Place` it means all; as the cluster of a floor or brake, it means that the job reported none."""


Scope = tuple[str, str, str, str, str]
"""Scope of a brake: trace, cluster, task type, user and group.

User or group is empty: the brake is on the other one. If both are empty, it is on the whole task type.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The scope of a brake, why it was set, and the Unix time of the report that exceeded the limit of harm.

    >>> str(Stop(scope=("pai", "", "ctr", "", "g3"), why="5 of the last 200 were killed", since=1596274200.0))
    '5 of the last 200 were killed; since 2020-08-01T09:30:00Z'
    """

    scope: Scope
    why: str
    since: float

    def __str__(self) -> str:
        return f"{self.why}; since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The learnt state at one moment; `seq` is the number of the latest change included.

    Modes, brakes and floors without a cluster apply to jobs of all clusters. For a job without a cluster, a brake or
    floor of any cluster applies; callers bound to clusters must name the cluster.
    """

    default: Mode = "observe"
    modes: Mapping[Place, Mode] = field(default_factory=dict)
    brakes: Mapping[Scope, Stop] = field(default_factory=dict)
    floors: Mapping[Key, float] = field(default_factory=dict)
    seq: int = 0

    def mode(self, trace: str, task_type: str, group: str | None, cluster: str | None = None) -> Mode:
        """Return the mode of a job: the first that is set of its group, its type and its trace, else `default`.

        At each of these levels, a mode set for the job's cluster takes precedence over a mode for all clusters.

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

    def braked(
        self, trace: str, task_type: str, cluster: str | None = None, group: str | None = None, user: str | None = None
    ) -> Stop | None:
        """Return why a job must not be shrunk like others of its type, user or group; None if it may be shrunk."""
        if not self.brakes:
            return None
        owners = ((EVERY, EVERY), (user or EVERY, EVERY), (EVERY, group or EVERY))
        clusters = {scope[1] for scope in self.brakes} if cluster is None else (cluster, EVERY)
        found = (self.brakes.get((trace, each, task_type, *owner)) for owner in owners for each in clusters)
        return next((stop for stop in found if stop is not None), None)

    def memory_floor_gib(
        self, trace: str, cluster: str | None, group: str | None, role: str, user: str | None = None
    ) -> float:
        """Return the memory below which similar jobs were killed, plus a margin; NaN if no similar job was killed.

        Similar jobs have the same group and role. For a job without a group, similar jobs have no group, and
        the same user and role.
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
    """A floor, the largest allocation of a killed job, and the runs in a row below it, believed and bounded."""

    floor_gib: float
    killed_gib: float
    calm: int = 0
    calm_bounded: int = 0
    fell_at: float = -np.inf


@dataclass(slots=True, kw_only=True)
class FeedbackState:
    """The modes, brakes and memory floors after the changes applied so far; `frozen` returns an immutable copy.

    `unwritten` holds the brakes that this worker has not yet written to the store.
    """

    settings: ServeSettings
    modes: dict[Place, Mode] = field(default_factory=dict)
    brakes: dict[Scope, Stop] = field(default_factory=dict)
    unwritten: dict[Scope, Stop] = field(default_factory=dict)
    seq: int = 0
    _windows: dict[Scope, deque[tuple[str, str | None]]] = field(default_factory=dict)
    _unshrunk: dict[Scope, tuple[int, int]] = field(default_factory=dict)
    _floors: dict[Key, _Floor] = field(default_factory=dict)
    _bounded_floors: dict[Key, dict[str, _Floor]] = field(default_factory=dict)  # by job id

    def frozen(self) -> Learned:
        """Return an immutable copy of the current state."""
        floors = {key: each.floor_gib for key, each in self._floors.items()}
        for key, of_jobs in self._bounded_floors.items():
            for each in of_jobs.values():
                floors[key] = max(floors.get(key, 0.0), each.floor_gib)
        return Learned(
            default=self.settings.mode,
            modes=dict(self.modes),
            brakes=dict(self.brakes),
            floors=floors,
            seq=self.seq,
        )

    def apply(self, change: Change) -> None:
        """Apply one change: a mode, a release of brakes, a brake written by a worker, or a finished job."""
        if isinstance(change, ModeSet):
            if change.mode:
                self.modes[change.place] = "enforce" if change.mode == "enforce" else "observe"
            else:
                self.modes.pop(change.place, None)
        elif isinstance(change, Reset):
            for key in [key for key in {*self.brakes, *self._windows} if change.releases(*key)]:
                for of in (self.brakes, self.unwritten, self._windows):
                    of.pop(key, None)
        elif isinstance(change, Brake):
            self.brakes[change.scope] = Stop(scope=change.scope, why=change.why, since=change.at)
            self.unwritten.pop(change.scope, None)
        elif isinstance(change, Outcome):
            if change.kind == BELIEVED:
                self._count_harm(change)
            self._move_floor(change)

    def _count_harm(self, row: Outcome) -> None:
        """Add a job to the windows of its group, user and type, and set the brakes whose limits are then exceeded.

        A brake needs harm from several sources: jobs of a group, groups of a user, users of a type.
        """
        scopes = list(_scopes(row))
        harm = self._harm_to(row, scopes[0][0])
        if not shrunk_resources(row):
            return
        limit = self.settings.kill_limit_frac
        for scope, source in scopes:
            window = self._windows.setdefault(scope, deque(maxlen=self.settings.kill_window))
            window.append((source, harm))
            harmed = [(source, each) for source, each in window if each is not None] if harm else []
            enough = len(dict(harmed)) >= self.settings.kill_least and len(harmed) > limit * len(window)
            if enough and scope not in self.brakes:
                kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(each for _, each in harmed).most_common())
                of = f"{len(harmed)} of the last {len(window)} shrunk jobs"
                why = f"{of} came to harm ({kinds}), expected at most {limit:.2%}"
                self.brakes[scope] = self.unwritten[scope] = Stop(scope=scope, why=why, since=row.at)

    def _harm_to(self, row: Outcome, own: Scope) -> str | None:
        """Return the harm to a job because it was shrunk; None without harm, or if it may have other causes.

        A job that failed at once or ran long counts if its group's unshrunk jobs (`own`) rarely do so.
        """
        shrunk = shrunk_resources(row)
        if "mem_gib" in shrunk and row.outcome == OOM:
            return "killed for memory"
        jobs, bad = self._unshrunk.get(own, (0, 0))
        found = ran_badly(row)
        if shrunk and shrunk != ("mem_gib",):
            sound = jobs >= self.settings.kill_least and bad <= self.settings.kill_limit_frac * jobs
            return found if sound else None
        if row.outcome in ("completed", "failed", "timeout"):
            self._unshrunk[own] = jobs + 1, bad + (found is not None)
        return None

    def _move_floor(self, row: Outcome) -> None:
        whose, name = ("user", row.user) if row.group is None else ("group", row.group)
        if name is None:
            return
        key = (row.trace, row.cluster, whose, name, row.role)
        bounded = self._bounded_floors.get(key, {})
        if row.kind == BELIEVED:
            bounded.pop(row.job_id, None)
        if row.outcome != OOM:
            if row.kind == BELIEVED:
                _calm(self._floors, key, row)
            for job_id in list(bounded):
                _calm(bounded, job_id, row)
        elif row.kind == BELIEVED:
            _raise(self._floors, key, row)
        else:
            _raise(self._bounded_floors.setdefault(key, bounded), row.job_id, row)
            if len(bounded) > BOUNDED_FLOORS:
                del bounded[min(bounded, key=lambda job_id: bounded[job_id].floor_gib)]


def _raise(floors: dict[K, _Floor], key: K, row: Outcome) -> None:
    """Raise a floor after a kill."""
    # If the allocation is unknown, use the measured peak: the job was killed when its use reached that.
    killed = row.mem_max_gib if row.alloc_mem_gib is None else row.alloc_mem_gib
    if killed is not None:
        known = floors.get(key) or _Floor(floor_gib=0.0, killed_gib=0.0)
        higher = max(known.killed_gib, killed)
        asked = row.req_mem_gib if is_below(row.alloc_mem_gib, row.req_mem_gib) else None
        floor_gib = max(known.floor_gib, higher * OOM_MARGIN, asked or 0.0)
        floors[key] = _Floor(floor_gib=floor_gib, killed_gib=higher, fell_at=known.fell_at)


def _calm(floors: dict[K, _Floor], key: K, row: Outcome) -> None:
    """Lower a floor after enough runs in a row that used less; restart the count after a run that used more."""
    floor = floors.get(key)
    if floor is None or row.mem_max_gib is None:
        return
    if row.mem_max_gib >= floor.killed_gib:
        floors[key] = replace(floor, calm=0, calm_bounded=0)
    elif is_below(row.alloc_mem_gib, row.req_mem_gib) or is_mixed_up(row.mem_max_gib, row.peak_mem_gib):
        return
    elif row.kind != BELIEVED:
        fall = floor.calm_bounded + 1 >= CALM_RUNS and row.at >= floor.fell_at + DAY_S
        lower = replace(floor, floor_gib=FALL * floor.floor_gib, calm_bounded=0, fell_at=row.at)
        floors[key] = lower if fall else replace(floor, calm_bounded=floor.calm_bounded + 1)
    elif floor.calm + 1 >= CALM_RUNS:
        del floors[key]
    else:
        floors[key] = replace(floor, calm=floor.calm + 1)


def _scopes(row: Outcome) -> Iterator[tuple[Scope, str]]:
    """Yield the scopes of a job's brakes, the narrowest first, each with the source of harm that the job counts as.

    A job without a group or user counts as a separate source.
    """
    itself = f"{row.job_id}/{row.role}"
    place = (row.trace, row.cluster, row.task_type)
    if row.group is not None:
        yield (*place, EVERY, row.group), itself
    if row.user is not None:
        yield (*place, row.user, EVERY), row.group or itself
    yield (*place, EVERY, EVERY), row.user or row.group or itself


def ran_badly(row: Outcome) -> str | None:
    """Return in words if a job failed within `BROKEN_S`, timed out, or took over `LATE` times its p90; else None."""
    if row.outcome == "failed" and row.run_s < BROKEN_S:
        return "failed at once"
    late = row.outcome == "completed" and row.p90_s is not None and row.run_s > LATE * row.p90_s
    return "late" if late or row.outcome == "timeout" else None


def state_of(store: Store, settings: ServeSettings, upto: int) -> FeedbackState:
    """Return the learnt state after all stored changes up to number `upto`."""
    state = FeedbackState(settings=settings, seq=upto)
    for change in changes_between(store, 0, upto, finished=Outcome):
        state.apply(change)
    return state

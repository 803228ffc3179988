"""How feedback is learnt from: what counts as shrunk and as measured, which kills raise floors, when to stop shrinking.

Pure rules and the state they build up, change by change and in their order; nothing is read or written.
Called by `feed`, `feedback` and `modes` and, for training rows, through the feed's files.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from features.vocabulary import Status
from modelserve.learning.learned import Key, Learned, Mode, Place, Stop
from modelserve.settings import ServeSettings
from modelserve.store.controls import Brake, ModeSet, Reset
from modelserve.store.finished import OOM, SLACK, Finished, Outcome

STATUS_OF_OUTCOME: Final[dict[str, Status]] = {
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    OOM: Status.FAILED,
    "cancelled": Status.CANCELLED,
    "timeout": Status.TIMEOUT,
    "node_fail": Status.NODE_FAIL,
}
"""What a finished job reports, as the canonical tables say it: a kill for memory is a failure there."""

OOM_MARGIN: Final = 1.2
"""A floor lies this far above the allocation that was killed: the kill tells that the peak lies above, not how far, and
autoscalers in wide use raise memory by a fifth after a kill as well."""
CALM_RUNS: Final = 20
"""Later runs of the like, unshrunk in memory and measured, that must all have stayed below the killed allocation before
the floor is lifted: then the kill tells of these jobs no more."""


def is_below(allocated: float | None, requested: float | None) -> bool:
    """Tell whether less was allocated than was asked for; False where either is not known."""
    return allocated is not None and requested is not None and allocated < requested * (1.0 - SLACK)


def shrunk_resources(row: Finished | Outcome) -> tuple[str, ...]:
    """Return the resources of which a job got less than it asked for."""
    pairs = (
        ("cpu_cores", row.alloc_cpu_cores, row.req_cpu_cores),
        ("mem_gib", row.alloc_mem_gib, row.req_mem_gib),
        ("gpus", row.alloc_gpus, row.req_gpus),
    )
    return tuple(name for name, allocated, requested in pairs if is_below(allocated, requested))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one instance of a finished job used, as far as it may be learnt from; None is unmeasured."""

    cpu_cores: float | None
    gpus: float | None
    mem_max_gib: float | None
    gpu_mem_max_gib: float | None

    @property
    def measured(self) -> bool:
        """Whether anything is left to learn."""
        return any(v is not None for v in (self.cpu_cores, self.gpus, self.mem_max_gib, self.gpu_mem_max_gib))


def teachable_use(row: Finished) -> Use:
    """Return the use that a job may teach: of a shrunk resource only what lay above the peak predicted for it.

    What a job used of a resource it was short of says how much it got, not how much it needed, so it may raise a floor
    and never lower one. A shrunk GPU share holds the device's memory with it.
    """
    shrunk = shrunk_resources(row)

    def kept(used: float | None, peak: float | None, resource: str) -> float | None:
        if used is None or resource not in shrunk:
            return used
        return used if peak is not None and used > peak else None

    return Use(
        cpu_cores=kept(row.used_cpu_cores, row.peak_cpu_cores, "cpu_cores"),
        gpus=kept(row.used_gpus, row.peak_gpus, "gpus"),
        mem_max_gib=kept(row.mem_max_gib, row.peak_mem_gib, "mem_gib"),
        gpu_mem_max_gib=kept(row.gpu_mem_max_gib, row.peak_gpu_mem_gib, "gpus"),
    )


@dataclass(slots=True, kw_only=True)
class _Floor:
    floor_gib: float
    killed_gib: float
    calm: int = 0


@dataclass(slots=True, kw_only=True)
class Lessons:
    """All that changes have taught so far; `frozen()` is what others may see of it."""

    settings: ServeSettings
    modes: dict[Place, Mode] = field(default_factory=dict)
    brakes: dict[tuple[str, str, str], Stop] = field(default_factory=dict)
    unwritten: dict[tuple[str, str, str], Stop] = field(default_factory=dict)
    seq: int = 0
    _windows: dict[tuple[str, str, str], deque[bool]] = field(default_factory=dict)
    _floors: dict[Key, _Floor] = field(default_factory=dict)

    def frozen(self) -> Learned:
        """Return what is known now."""
        return Learned(
            default=self.settings.mode,
            modes=dict(self.modes),
            brakes=dict(self.brakes),
            floors={key: each.floor_gib for key, each in self._floors.items()},
            seq=self.seq,
        )

    def set_mode(self, change: ModeSet) -> None:
        """Let a mode stand for its place, or take it back."""
        if change.mode:
            self.modes[change.place] = "enforce" if change.mode == "enforce" else "observe"
        else:
            self.modes.pop(change.place, None)

    def brake(self, change: Brake) -> None:
        """Let a brake stand that some worker found and wrote down."""
        key = (change.trace, change.cluster, change.task_type)
        self.brakes[key] = Stop(why=change.why, since=change.at)
        self.unwritten.pop(key, None)

    def reset(self, change: Reset) -> None:
        """Release a brake; kills are counted anew from here on."""
        for key in [*self.brakes, *self._windows]:
            if change.releases(*key):
                self.brakes.pop(key, None)
                self.unwritten.pop(key, None)
                self._windows.pop(key, None)

    def finish(self, row: Finished | Outcome) -> None:
        """Learn from one finished job."""
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
            # What was reached, where it is not said what was given.
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

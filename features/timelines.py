"""Events of one key in time order (`Timeline`), and one key as of a moment (`Glance`).

Arrays only; jobs and their keys are in `features.online`.
Called by `features.online`, which adds events, and by `features.rows` and `features.lookups`, which read them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.columns.recency import Rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

KEPT_ANSWERS: Final = 16
"""Results that are cached per key; the cache empties when it is full or when events are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Events of one kind, by time and then by row: times, rows, and running sums of weights (starting at 0)."""

    ts: IntArray
    rows: IntArray
    sums: Mapping[str, IntArray]
    last_us: int

    @classmethod
    def of(cls, ts: IntArray, rows: IntArray, sums: Mapping[str, IntArray]) -> "Track":
        """Make a track of sorted arrays."""
        return cls(ts=ts, rows=rows, sums=sums, last_us=int(ts[-1]) if len(ts) else -1)

    def before(self, now_us: int) -> int:
        """Return how many events came strictly before a moment."""
        return len(self.ts) if now_us > self.last_us else int(self.ts.searchsorted(now_us))

    def with_events(
        self, ts: IntArray, rows: IntArray, weights: Mapping[str, IntArray], order: Callable[[int], Any]
    ) -> "Track":
        """Return the track with more events inserted by time; `order` is the sort key of rows of the same time."""
        new = sorted(range(len(rows)), key=lambda i: (ts[i], order(int(rows[i]))))
        ts, rows = ts[new], rows[new]
        places = self.ts.searchsorted(ts, side="right")
        first = self.ts.searchsorted(ts)
        for i in np.flatnonzero(first < places):  # among events of the same time
            places[i] = first[i] + _place(self.rows[first[i] : places[i]], int(rows[i]), order)
        sums = {
            name: np.concatenate(([0], np.cumsum(np.insert(np.diff(sums), places, weights[name][new]))))
            for name, sums in self.sums.items()
        }
        return Track.of(np.insert(self.ts, places, ts), np.insert(self.rows, places, rows), sums)


def _place(rows: IntArray, row: int, order: Callable[[int], Any]) -> int:
    mine, low, high = order(row), 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if order(int(rows[middle])) < mine:
            low = middle + 1
        else:
            high = middle
    return low


@dataclass(slots=True, kw_only=True)
class Timeline:
    """One key: a track per kind of event, the number of added runs merged so far, and cached results."""

    tracks: Mapping[str, Track]
    merged: int = 0
    answers: dict[tuple[object, int], Any] = field(
        default_factory=dict
    )  # the type depends on the caller that cached it

    def remember(self, what: object, stop: int, answer: object) -> None:
        """Cache the result of `what` over the first `stop` events."""
        if len(self.answers) >= KEPT_ANSWERS:
            self.answers.clear()
        self.answers[what, stop] = answer

    def grow(self, tracks: Mapping[str, Track], merged: int) -> None:
        """Replace the tracks by longer ones and empty the cache."""
        self.tracks, self.merged = tracks, merged
        self.answers.clear()


class Glance:
    """One key at one moment: satisfies `features.columns.load.Moment`."""

    __slots__ = ("_stops", "now_us", "timeline")

    def __init__(self, timeline: Timeline, now_us: int) -> None:
        self.timeline = timeline
        self.now_us = now_us
        self._stops: dict[str, int] = {}

    def stop(self, kind: str) -> int:
        """Return how many events of a kind came strictly before the moment."""
        stop = self._stops.get(kind)
        if stop is None:
            stop = self._stops[kind] = self.timeline.tracks[kind].before(self.now_us)
        return stop

    def count(self, kind: str, ago_us: int = 0) -> int:
        """Return how many events of a kind came before `ago_us` ago."""
        return self.timeline.tracks[kind].before(self.now_us - ago_us) if ago_us else self.stop(kind)

    def running(self, weight: str) -> int:
        """Return the sum of a weight over the jobs that had started and not ended."""
        tracks = self.timeline.tracks
        started: int = tracks["started"].sums[weight].item(self.stop("started"))
        ended: int = tracks["ended"].sums[weight].item(self.stop("ended"))
        return started - ended

    def since_end_us(self) -> float:
        """Return the time since a job last ended, NaN if none had."""
        stop = self.stop("ended")
        return self.now_us - int(self.timeline.tracks["ended"].ts[stop - 1]) if stop else np.nan

    def per(self, above: int, below: int) -> float:
        """Return a ratio of whole numbers, NaN where `below` is zero."""
        return above / below if below > 0 else np.nan


def newest_rows(glances: Sequence[Glance], kind: str, last: int) -> Rows:
    """Return the rows (n, last) of the newest events of a kind, newest first, and which entries hold a row."""
    rows = np.zeros((len(glances), last), dtype=np.int64)
    stops = [glance.stop(kind) for glance in glances]
    for i, (glance, stop) in enumerate(zip(glances, stops, strict=True)):
        seen = glance.timeline.tracks[kind].rows[max(stop - last, 0) : stop]
        rows[i, : len(seen)] = seen[::-1]
    return rows, np.arange(last) < np.array(stops)[:, None]


def empty_timeline(weights: Sequence[str], kinds: Mapping[str, bool]) -> Timeline:
    """Return a timeline without events; `kinds` maps each kind of event to whether it carries weights."""
    none = np.empty(0, dtype=np.int64)
    sums = {name: np.zeros(1, dtype=np.int64) for name in weights}
    return Timeline(tracks={kind: Track.of(none, none, sums if w else {}) for kind, w in kinds.items()})

"""Lookups of history features for single jobs, in the timeline of each key, which caches recent results."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.columns import recency
from features.columns.feature import Load, Newest, Recent
from features.columns.load import MEASURES, STEADY, Measure
from features.columns.newest import STATS
from features.columns.recency import Rows
from features.history import EVENT_KINDS, NEVER, WEIGHTED_KINDS
from features.kernels import newest_at_places
from features.ledger import WEIGHTS, Ledger
from features.references import ALL, HISTORY_FORECASTS, LIKE, QUANTILE_NAMES, log_mean, log_of
from features.sets import FEATURES

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

KEPT_ANSWERS: Final = 16
"""Maximum number of results cached per key; the cache is emptied when it is full or when events are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Events of one kind under one key, sorted by time and then by row.

    `ts` holds their times in microseconds, `rows` their rows, and `sums` running sums of job weights, which start with
    0. `last_us` is the latest time, -1 without events.
    """

    ts: IntArray
    rows: IntArray
    sums: Mapping[str, IntArray]
    last_us: int

    @classmethod
    def of(cls, ts: IntArray, rows: IntArray, sums: Mapping[str, IntArray]) -> "Track":
        """Build a track from arrays that are already sorted."""
        return cls(ts=ts, rows=rows, sums=sums, last_us=int(ts[-1]) if len(ts) else -1)

    def before(self, now_us: int) -> int:
        """Return how many events happened strictly before a moment."""
        return len(self.ts) if now_us > self.last_us else int(self.ts.searchsorted(now_us))

    def with_events(
        self, ts: IntArray, rows: IntArray, weights: Mapping[str, IntArray], order: Callable[[int], Any]
    ) -> "Track":
        """Return a track with more events inserted by time; `order` gives a row's sort key among equal times."""
        new = sorted(range(len(rows)), key=lambda i: (ts[i], order(int(rows[i]))))
        ts, rows = ts[new], rows[new]
        places = self.ts.searchsorted(ts, side="right")
        first = self.ts.searchsorted(ts)
        for i in np.flatnonzero(first < places):  # other events have the same time: insert by `order`
            equal = self.rows[first[i] : places[i]].tolist()
            places[i] = first[i] + bisect_left(equal, order(int(rows[i])), key=order)
        sums = {
            name: np.concatenate(([0], np.cumsum(np.insert(np.diff(sums), places, weights[name][new]))))
            for name, sums in self.sums.items()
        }
        return Track.of(np.insert(self.ts, places, ts), np.insert(self.rows, places, rows), sums)


@dataclass(slots=True, kw_only=True)
class Timeline:
    """The events under one key.

    `tracks` maps each kind of event to its track; `merged` counts the added runs merged into the tracks so far;
    `answers` caches results, `moment` those of one moment: `Moving` lookups, the moment (us) and their values.
    """

    tracks: Mapping[str, Track]
    merged: int = 0
    answers: dict[tuple[object, int], Any] = field(default_factory=dict)  # Any: what the caller cached
    moment: tuple[object, int, FloatArray] | None = None

    def remember(self, what: object, stop: int, answer: object) -> None:
        """Cache the result `answer` of the lookup `what` over the first `stop` events of its track."""
        if len(self.answers) >= KEPT_ANSWERS:
            self.answers.clear()
        self.answers[what, stop] = answer

    def grow(self, tracks: Mapping[str, Track], merged: int) -> None:
        """Replace the tracks by longer ones that contain the same and more events, and empty the cache."""
        self.tracks, self.merged, self.moment = tracks, merged, None
        self.answers.clear()


class Glance:
    """The timeline of one key, seen at one moment; implements `features.columns.load.Moment`."""

    __slots__ = ("_stops", "now_us", "timeline")

    def __init__(self, timeline: Timeline, now_us: int) -> None:
        self.timeline = timeline
        self.now_us = now_us
        self._stops: dict[str, int] = {}

    def unchanged(self) -> tuple[int, int]:
        """Return the times of the last event before the moment and of the next event; `stop` is constant in between."""
        last, following = -NEVER, NEVER
        for kind, track in self.timeline.tracks.items():
            stop = self.stop(kind)
            last = max(last, int(track.ts[stop - 1])) if stop else last
            following = min(following, int(track.ts[stop])) if stop < len(track.ts) else following
        return last, following

    def stop(self, kind: str) -> int:
        """Return how many events of a kind happened strictly before the moment."""
        stop = self._stops.get(kind)
        if stop is None:
            stop = self._stops[kind] = self.timeline.tracks[kind].before(self.now_us)
        return stop

    def running(self, weight: str) -> int:
        """Return the sum of a weight over the jobs that run at the moment."""
        tracks = self.timeline.tracks
        started: int = tracks["started"].sums[weight].item(self.stop("started"))
        ended: int = tracks["ended"].sums[weight].item(self.stop("ended"))
        return started - ended

    def since_end_us(self) -> float:
        """Return the microseconds since the latest end of a job, NaN if none has ended."""
        stop = self.stop("ended")
        return self.now_us - int(self.timeline.tracks["ended"].ts[stop - 1]) if stop else np.nan

    def per(self, above: int, below: int) -> float:
        """Return the ratio `above` / `below` of whole numbers, NaN where `below` is zero."""
        return above / below if below > 0 else np.nan


def newest_rows(glances: Sequence[Glance], kind: str, last: int) -> Rows:
    """Return rows of each glance's newest events of a kind (n, last), newest first, and which entries are filled."""
    rows = np.zeros((len(glances), last), dtype=np.int64)
    stops = [glance.stop(kind) for glance in glances]
    for i, (glance, stop) in enumerate(zip(glances, stops, strict=True)):
        seen = glance.timeline.tracks[kind].rows[max(stop - last, 0) : stop]
        rows[i, : len(seen)] = seen[::-1]
    return rows, np.arange(last) < np.array(stops)[:, None]


def empty_timeline() -> Timeline:
    """Return a timeline without events."""
    none = np.empty(0, dtype=np.int64)
    sums = {name: np.zeros(1, dtype=np.int64) for name in WEIGHTS}
    return Timeline(tracks={k: Track.of(none, none, sums if k in WEIGHTED_KINDS else {}) for k in EVENT_KINDS})


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Statistics of the newest events of one kind under one key, for several window lengths.

    The results of one glance are cached together, with this object as the cache key.
    """

    kind: str
    plan: recency.Plan
    finish: Callable[[FloatArray], Any] = np.array  # converts the statistics to the value that is cached and returned

    def at(self, glances: Sequence[Glance], values: Mapping[str, FloatArray]) -> list[Any]:
        """Return the statistics for each glance; compute all that are not cached in one batch."""
        found = [glance.timeline.answers.get((self, glance.stop(self.kind))) for glance in glances]
        for answer in found:
            if answer is None:
                return self._completed(found, glances, values)
        return found

    def _completed(self, found: list[Any], glances: Sequence[Glance], values: Mapping[str, FloatArray]) -> list[Any]:
        spans = [(id(glance.timeline), glance.stop(self.kind)) for glance in glances]
        new = {span: glance for span, glance, answer in zip(spans, glances, found, strict=True) if answer is None}
        computed = recency.of_spans(self.plan, values, partial(newest_rows, list(new.values())))
        answers = dict(zip(new, map(self.finish, computed), strict=True))
        for span, glance in new.items():
            glance.timeline.remember(self, span[1], answers[span])
        return [answers[span] if known is None else known for span, known in zip(spans, found, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Moving:
    """Lookups under one key that also change with the moment: measures of the load, and `STATS` of the newest jobs."""

    measures: Sequence[Measure]
    stats: IntArray

    def at(self, timeline: Timeline, now_us: int, ledger: Ledger) -> FloatArray:
        """Return the measures and statistics at a moment; jobs and models of one history share the results."""
        known = timeline.moment
        if known is not None and known[0] is self and known[1] == now_us:
            return known[2]
        glance, first = Glance(timeline, now_us), len(self.measures)
        values = np.empty(first + len(self.stats))
        for place, measure in enumerate(self.measures):
            values[place] = measure(glance)
        if len(self.stats):
            times = [ledger.times[name] for name in ("submit", "start", "end")]
            submitted, stop = timeline.tracks["submitted"].rows, glance.stop("submitted")
            places = np.arange(first, len(values))
            newest_at_places(submitted, stop, now_us, *times, self.stats, places, values)
        timeline.moment = self, now_us, values
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """All lookups under one key, with the columns of a feature row that they fill.

    `steady` measures change only with an event under the key. `moving` lookups also change with time; None if there are
    none.
    """

    key: str
    windows: Sequence[tuple[Windows, IntArray]]
    steady: Sequence[tuple[Measure, int]]
    moving: tuple[Moving, IntArray] | None

    def fill(self, rows: Sequence[FloatArray], glances: Sequence[Glance], ledger: Ledger) -> None:
        """Look up the features of each glance that change only with an event, and write them into its feature row."""
        for windows, places in self.windows:
            for row, answer in zip(rows, windows.at(glances, ledger.values), strict=True):
                row[places] = answer
        for measure, place in self.steady:
            for row, glance in zip(rows, glances, strict=True):
                row[place] = measure(glance)

    def fill_moving(self, row: FloatArray, timeline: Timeline, now_us: int, ledger: Ledger) -> None:
        """Look up the features that change with the moment, and write them into a feature row."""
        if self.moving is not None:
            moving, places = self.moving
            row[places] = moving.at(timeline, now_us, ledger)


def key_plans(names: Sequence[str]) -> list[KeyPlan]:
    """Return one plan per key for the history features in `names`; columns are positions in `names`."""
    looks = {i: source for i, name in enumerate(names) if isinstance(source := FEATURES[name].source, _LOOKS)}
    plans = []
    for key in dict.fromkeys(look.key for look in looks.values()):
        mine = {i: look for i, look in looks.items() if look.key == key}
        recent = {i: look for i, look in mine.items() if isinstance(look, Recent)}
        windows = []
        for kind in dict.fromkeys(look.events for look in recent.values()):
            here = {i: look for i, look in recent.items() if look.events == kind}
            windows.append((_windows(kind, tuple(here.values())), np.array(list(here), dtype=np.int64)))
        loads = {i: look for i, look in mine.items() if isinstance(look, Load)}
        steady = {i: look.measure for i, look in loads.items() if look.measure in STEADY}
        moving = {i: look.measure for i, look in loads.items() if look.measure not in STEADY}
        newest = {i: look.stat for i, look in mine.items() if isinstance(look, Newest)}
        places = np.array([*moving, *newest], dtype=np.int64)
        plans.append(
            KeyPlan(
                key=key,
                windows=windows,
                steady=[(MEASURES[measure], i) for i, measure in steady.items()],
                moving=(_moving(tuple(moving.values()), tuple(newest.values())), places) if len(places) else None,
            )
        )
    return plans


_LOOKS: Final = (Recent, Load, Newest)


@lru_cache(maxsize=256)
def _moving(measures: tuple[str, ...], stats: tuple[str, ...]) -> Moving:
    """Return one shared object for equal lookups, like `_windows`."""
    return Moving([MEASURES[measure] for measure in measures], np.array([*map(STATS.index, stats)], dtype=np.int64))


@lru_cache(maxsize=256)
def _windows(kind: str, looks: tuple[Recent, ...]) -> Windows:
    """Return the same object for the same lookups, so that all models of one history share cached results."""
    return Windows(kind, recency.plan(looks))


def _reference_windows(names: Mapping[str, Sequence[str]]) -> Windows:
    sources = [FEATURES[name].source for quantile in QUANTILE_NAMES for name in names[quantile]]
    looks = tuple(source for source in sources if isinstance(source, Recent))
    return Windows("ended", recency.plan(looks), _log_means)


def _log_means(seconds: FloatArray) -> tuple[float, float]:
    """Return the log means of p50 and of p90, each of its three windows; NaN where unknown."""
    known = seconds.tolist()
    return log_mean(known[:3]), log_mean(known[3:])


def _history_windows(key: str, last: int) -> Windows:
    looks = (FEATURES[f"{key}_run_s_{stat}_{last}"].source for stat in (*QUANTILE_NAMES, "count"))
    return Windows("ended", recency.plan(tuple(look for look in looks if isinstance(look, Recent))), _forecast)


def _forecast(known: FloatArray) -> tuple[float, float, int]:
    """Return log p50 and p90 in seconds of a window, NaN if it is empty, and its number of ended jobs."""
    p50, p90, count = known.tolist()
    return log_of(p50), log_of(p90), int(count)


HISTORY_WINDOWS: Final = tuple((key, _history_windows(key, last)) for key, last in HISTORY_FORECASTS.values())
"""Key and windows of each of `HISTORY_FORECASTS`; their results are those of `_forecast`."""
REFERENCE_OF_LIKE: Final = _reference_windows(LIKE)
REFERENCE_OF_ALL: Final = _reference_windows(ALL)

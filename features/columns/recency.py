"""Features of the newest ended jobs with the same key: how long they ran, how they ended, what they used.

Each statistic is computed from one window of jobs, never from running sums.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.columns.feature import KEY_COLUMNS, Feature, Lookback, Recent
from features.history import DEPTH, REQUEST_COLUMNS, USE_COLUMNS
from features.keys import LIKE, LIKE_LEVELS

__all__ = ["extremes_before"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Rows = tuple[IntArray, npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The values in n windows.

    `newest` (n, last) holds them newest first; `ranked` (n, last) in ascending order, with NaN at the end; `count` (n,)
    is the number of known values.
    """

    newest: FloatArray
    ranked: FloatArray
    count: IntArray


def count(sample: Sample) -> FloatArray:
    """Return the number of known values in each window (n,)."""
    return sample.count.astype(np.float64)


def mean(sample: Sample) -> FloatArray:
    """Return the mean of the known values in each window (n,)."""
    return _divide(np.where(np.isnan(sample.newest), 0.0, sample.newest).sum(axis=1), sample.count)


def std(sample: Sample) -> FloatArray:
    """Return the standard deviation of the known values in each window (n,), divided by n, not n - 1."""
    gaps = sample.newest - mean(sample)[:, None]
    return np.sqrt(_divide(np.where(np.isnan(gaps), 0.0, gaps * gaps).sum(axis=1), sample.count))


def _divide(sums: FloatArray, counts: IntArray) -> FloatArray:
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def quantile(level: float) -> Callable[[Sample], FloatArray]:
    """Return the statistic that computes the quantile at `level`, with linear interpolation."""

    def at_level(sample: Sample) -> FloatArray:
        place = np.maximum(sample.count - 1, 0) * level
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(sample.count - 1, 0))
        rows = np.arange(len(place))
        low, high = sample.ranked[rows, below], sample.ranked[rows, above]
        return low + (high - low) * (place - below)

    return at_level


def nth(back: int) -> Callable[[Sample], FloatArray]:
    """Return the statistic that selects the `back`-th newest value, where 1 is the newest."""
    return lambda sample: sample.newest[:, back - 1]


STATS: Final[dict[str, Callable[[Sample], FloatArray]]] = {
    "count": count,
    "mean": mean,
    "std": std,
    "p10": quantile(0.10),
    "p25": quantile(0.25),
    "p50": quantile(0.50),
    "p75": quantile(0.75),
    "p90": quantile(0.90),
    "max": quantile(1.0),
    "last1": nth(1),
    "last2": nth(2),
    "last3": nth(3),
}
_RANKED: Final = frozenset({"p10", "p25", "p50", "p75", "p90", "max"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """All lookups that read the `last` newest events of one kind.

    `stats` maps a column and a statistic to two arrays: the row indices of its lookups in the list of all lookups, and
    the indices of their keys in `keys`.
    """

    events: str
    last: int
    keys: tuple[str, ...]
    stats: Mapping[str, Mapping[str, tuple[IntArray, IntArray]]]


Plan = tuple[Window, ...]
"""The windows from which all lookups of a list are computed."""


def plan(looks: Sequence[Recent]) -> Plan:
    """Group the lookups `looks` by window, column and statistic."""
    grouped: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, look in enumerate(looks):
        grouped[look.events, look.last].append(place)
    windows = []
    for (events, last), places in grouped.items():
        keys = tuple(sorted({looks[place].key for place in places}))
        stats: dict[str, dict[str, tuple[IntArray, IntArray]]] = defaultdict(dict)
        for column, stat in sorted({(looks[place].column, looks[place].stat) for place in places}):
            here = [p for p in places if (looks[p].column, looks[p].stat) == (column, stat)]
            stats[column][stat] = (np.array(here), np.array([keys.index(looks[p].key) for p in here]))
        windows.append(Window(events=events, last=last, keys=keys, stats=stats))
    return tuple(windows)


def fill(answers: FloatArray, windows: Plan, seen: Lookback) -> None:
    """Write the planned lookups into `answers` (looks, n)."""
    for window in windows:
        events = seen.history.events[window.events]
        begin, stop = seen.span(window.events, window.keys)
        # Jobs submitted close together often have the same window: compute each distinct window once.
        distinct, inverse = np.unique(stop * (len(events.rows) + 1) + begin, return_inverse=True)
        stops, begins = np.divmod(distinct, len(events.rows) + 1)
        newest = events.newest(begins, stops, window.last)
        for (places, keys), statistic in _statistics(window, seen.history.values, newest):
            answers[places] = statistic[inverse].reshape(-1, len(window.keys))[:, keys].T


def of_spans(windows: Plan, values: Mapping[str, FloatArray], newest: Callable[[str, int], Rows]) -> FloatArray:
    """Return the results (n, looks) of the planned lookups, all of one key, for n timelines.

    `newest(kind, last)` returns the rows of the newest events of a kind, shape (n, last), as `Events.newest` does.
    """
    answers: dict[int, FloatArray] = {}
    for window in windows:
        for (places, _), statistic in _statistics(window, values, newest(window.events, window.last)):
            answers.update((int(place), statistic) for place in places)
    return np.column_stack([answers[place] for place in range(len(answers))])


def _statistics(
    window: Window, values: Mapping[str, FloatArray], newest: Rows
) -> Iterator[tuple[tuple[IntArray, IntArray], FloatArray]]:
    """Yield the row and key indices of the lookups of each statistic of a window, and its values (n,)."""
    rows, held = newest
    for column, stats in window.stats.items():
        sample = _sample(values[column], rows, held, ranked=not _RANKED.isdisjoint(stats))
        for stat, places in stats.items():
            yield places, STATS[stat](sample)


def _sample(values: FloatArray, rows: IntArray, held: npt.NDArray[np.bool_], *, ranked: bool) -> Sample:
    newest = np.where(held, values[rows], np.nan) if len(values) else np.full(rows.shape, np.nan)
    known = (~np.isnan(newest)).sum(axis=1)
    return Sample(newest=newest, ranked=np.sort(newest, axis=1) if ranked else newest, count=known)


PEAKS: Final = ("mem_max_gib", "gpu_mem_max_gib")
"""Measurements whose largest value in a group is a lower bound of the need of its next job."""
EXTREMES: Final = (*PEAKS, *REQUEST_COLUMNS)
"""Values that `extremes_of` returns of a group: its largest peaks, and the largest usual request of each resource."""
PEAK_RUNS: Final = 100
"""Number of a group's newest measured runs from which its extremes come."""
USUAL_RUNS: Final = 3
"""A request is usual if at least so many of these runs requested as much or more."""


def extremes_of(values: Mapping[str, FloatArray], newest: Rows) -> FloatArray:
    """Return `EXTREMES` over the rows of n spans (n, 5), NaN where unknown.

    These are the largest of each of `PEAKS`, and the `USUAL_RUNS`-th largest request of each resource.
    """
    rows, held = newest
    if not len(values[PEAKS[0]]):
        return np.full((len(rows), len(EXTREMES)), np.nan)
    known = [np.where(held, values[name][rows], np.nan) for name in EXTREMES]
    largest = [np.fmax.reduce(each, axis=1) for each in known[: len(PEAKS)]]
    usual = [-np.sort(-each, axis=1)[:, USUAL_RUNS - 1] for each in known[len(PEAKS) :]]
    return np.column_stack([*largest, *usual])


def extremes_before(seen: Lookback) -> FloatArray:
    """Return `extremes_of` the newest measured runs of each job's group and role before its submission (n, 5)."""
    newest = seen.history.events["measured"].newest(*seen.span("measured", ("group_role",)), PEAK_RUNS)
    return extremes_of(seen.history.values, newest)


_WINDOWS: Final = (5, 20, 100, 300, 1000)
_RUN_STATS: Final = {
    "run_s": ("count", "p10", "p25", "p50", "p75", "p90"),
    "log_run": ("mean", "std"),
    "short": ("mean",),
    "failed": ("mean",),
}
NETWORK: Final = "net_read_bytes_per_s"
"""Measurement of network traffic; only its median is a feature, for response models."""
_USE_STATS: Final = {
    **dict.fromkeys(USE_COLUMNS, ("count", "last1", "p50", "p90", "max")),
    NETWORK: ("p50",),
}
_UNITS: Final = {
    "run_s": "s",
    "log_run": "log s",
    "short": "fraction",
    "failed": "fraction",
    "used_cpu_cores": "cores",
    "used_gpus": "GPUs",
    "mem_max_gib": "GiB",
    "gpu_mem_max_gib": "GiB",
    NETWORK: "bytes/s",
}


def _feature(look: Recent) -> Feature:
    single = look.stat.startswith("last")
    name = f"{look.key}_{look.column}_{look.stat}" + ("" if single else f"_{look.last}")
    which = "ended" if look.events == "ended" else "measured"
    doc = f"{look.stat} of {look.column} over the last {look.last} {which} jobs of the same {look.key}"
    unit = {"count": "count", "std": "log ratio"}.get(look.stat, _UNITS[look.column])
    return Feature(name=name, unit=unit, doc=doc, source=look, needs=KEY_COLUMNS)


def _looks() -> list[Recent]:
    looks = []
    for key in (*DEPTH, LIKE):
        depth = min(DEPTH[level] for level in LIKE_LEVELS) if key == LIKE else DEPTH[key]
        for last in (n for n in _WINDOWS if n <= depth):
            looks += [
                Recent(events="ended", key=key, column=column, stat=stat, last=last)
                for column, stats in _RUN_STATS.items()
                for stat in stats
            ]
        single = [Recent(events="ended", key=key, column="run_s", stat=f"last{back}", last=5) for back in (1, 2, 3)]
        used = [
            Recent(events="measured", key=key, column=column, stat=stat, last=20)
            for column in USE_COLUMNS
            for stat in _USE_STATS[column]
        ]
        looks += single + used
    return looks


RECENCY: Final[dict[str, Feature]] = {feature.name: feature for feature in map(_feature, _looks())}

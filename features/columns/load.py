"""Features of the load at submission: what the key has just submitted, what runs, what waits.

Only what is known then: submissions strictly before, and which of them had started or ended by then.
Called through `features.sets` and by `features.build`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.columns.feature import KEY_COLUMNS, Feature, Load
from features.history import BURST_GAP_S, SUBMITTED_DEPTH
from features.lookback import Lookback

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_US: Final = 1_000_000


def submitted(window_s: int) -> Callable[[Lookback, Sequence[str]], FloatArray]:
    """Return the measure that counts the submissions of the last `window_s` seconds."""

    def within(seen: Lookback, keys: Sequence[str]) -> FloatArray:
        _, stop = seen.span("submitted", keys)
        _, start = seen.span("submitted", keys, ago_us=window_s * _US)
        return seen.unless_null(stop - start, keys)

    return within


def _running(seen: Lookback, keys: Sequence[str], weight: str) -> IntArray:
    total = np.zeros(len(seen.submit_us) * len(keys), dtype=np.int64)
    for kind, sign in (("started", 1), ("ended", -1)):
        begin, stop = seen.span(kind, keys)
        sums = seen.history.events[kind].running[weight]
        total += sign * (sums[stop] - sums[begin])
    return total


def running_jobs(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return how many jobs had started and not ended."""
    return seen.unless_null(_running(seen, keys, "jobs"), keys)


def running_gpus(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the GPUs held by the jobs that had started and not ended."""
    return seen.unless_null(_running(seen, keys, "milli_gpus") / 1000, keys)


def waiting_jobs(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return how many jobs had been submitted and had neither started nor ended."""
    begin, stop = seen.span("submitted", keys)
    begin_ended, stop_ended = seen.span("ended", keys)
    there = (stop - begin) - (stop_ended - begin_ended)
    return seen.unless_null(there - _running(seen, keys, "jobs"), keys)


def since_submit_s(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the seconds since the key's previous submission."""
    return _since(seen, keys, "submitted", seen.history.submit_us)


def since_end_s(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the seconds since a job of the key last ended."""
    return _since(seen, keys, "ended", seen.history.end_us)


def _since(seen: Lookback, keys: Sequence[str], kind: str, ts: IntArray) -> FloatArray:
    begin, stop = seen.span(kind, keys)
    rows, held = seen.history.events[kind].newest(begin, stop, 1)
    return np.where(held[:, 0], (np.repeat(seen.submit_us, len(keys)) - _at(ts, rows)[:, 0]) / _US, np.nan)


def _at(values: IntArray, rows: IntArray) -> IntArray:
    return values[rows] if len(values) else np.zeros_like(rows)


def burst(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return how many submissions of the burst that this job continues came before it (0: it opens one)."""
    begin, stop = seen.span("submitted", keys)
    since = _since(seen, keys, "submitted", seen.history.submit_us)
    goes_on = (stop > begin) & (since < BURST_GAP_S)
    places = _at(seen.history.bursts, np.maximum(stop - 1, 0))
    return seen.unless_null(np.where(goes_on, places, 0), keys)


def _so_far(seen: Lookback, keys: Sequence[str]) -> tuple[FloatArray, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return what the newest submissions had run by now (n, last; NaN if not started), which run, and which exist."""
    begin, stop = seen.span("submitted", keys)
    rows, held = seen.history.events["submitted"].newest(begin, stop, SUBMITTED_DEPTH)
    now = np.repeat(seen.submit_us, len(keys))[:, None]
    start, end = _at(seen.history.start_us, rows), _at(seen.history.end_us, rows)
    started = held & (start < now)
    return np.where(started, (np.minimum(end, now) - start) / _US, np.nan), started & (end >= now), held


def newest_running_frac(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the share of the last 20 submissions that still run."""
    _, running, held = _so_far(seen, keys)
    counts = held.sum(axis=1)
    return np.where(counts > 0, running.sum(axis=1) / np.maximum(counts, 1), np.nan)


def newest_so_far_p50_s(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the median of what the last 20 submissions had run by now: long jobs count before they end."""
    so_far, _, _ = _so_far(seen, keys)
    ranked = np.sort(so_far, axis=1)
    counts = (~np.isnan(so_far)).sum(axis=1)
    rows = np.arange(len(counts))
    middle: FloatArray = (ranked[rows, np.maximum(counts - 1, 0) // 2] + ranked[rows, counts // 2]) / 2
    return middle


def last_so_far_s(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return what the previous submission had run by now."""
    so_far, _, _ = _so_far(seen, keys)
    newest: FloatArray = so_far[:, 0]
    return newest


MEASURES: Final[dict[str, Callable[[Lookback, Sequence[str]], FloatArray]]] = {
    "submitted_10min": submitted(600),
    "submitted_1h": submitted(3600),
    "submitted_24h": submitted(86_400),
    "running_jobs": running_jobs,
    "running_gpus": running_gpus,
    "waiting_jobs": waiting_jobs,
    "since_submit_s": since_submit_s,
    "since_end_s": since_end_s,
    "burst": burst,
    "newest_running_frac": newest_running_frac,
    "newest_so_far_p50_s": newest_so_far_p50_s,
    "last_so_far_s": last_so_far_s,
}
"""Measure name to function of (lookback, keys), answering (n * keys,), job by job."""

_UNIT_OF_SUFFIX: Final = {"_s": "s", "_frac": "fraction", "_gpus": "GPUs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The `loads` asked for, and for each measure its keys and the places it answers."""

    loads: tuple[Load, ...]
    places: Mapping[str, tuple[tuple[str, ...], IntArray]]


def plan(loads: Sequence[Load]) -> Plan:
    """Group `loads` by measure."""
    places = {}
    for measure in dict.fromkeys(look.measure for look in loads):
        here = [place for place, look in enumerate(loads) if look.measure == measure]
        places[measure] = (tuple(loads[p].key for p in here), np.array(here))
    return Plan(loads=tuple(loads), places=places)


def fill(answers: FloatArray, planned: Plan, seen: Lookback) -> None:
    """Write the loads that were planned into `answers` (loads, n)."""
    for measure, (keys, places) in planned.places.items():
        answers[places] = MEASURES[measure](seen, keys).reshape(-1, len(keys)).T


def _feature(load: Load) -> Feature:
    unit = next((u for suffix, u in _UNIT_OF_SUFFIX.items() if load.measure.endswith(suffix)), "count")
    doc = f"{load.measure} of the same {load.key} at submission"
    return Feature(name=f"{load.key}_{load.measure}", unit=unit, doc=doc, source=load, needs=KEY_COLUMNS)


LOAD_KEYS: Final = ("user", "vc", "gpus", "vc_gpus", "like", "all")

LOAD: Final[dict[str, Feature]] = {
    feature.name: feature
    for feature in (_feature(Load(key=key, measure=measure)) for key in LOAD_KEYS for measure in MEASURES)
}

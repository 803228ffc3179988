"""Features of the load at submission: what the key has just submitted, what runs, what waits.

Only what is known then: submissions strictly before, and which of them had started or ended by then.
Called through `features.sets` and by `features.build`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from features.columns.feature import KEY_COLUMNS, Feature, Load
from features.lookback import Lookback

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Measure = Callable[[Lookback, Sequence[str]], FloatArray | IntArray]

_US: Final = 1_000_000


def counted(kind: str, window_s: int) -> Measure:
    """Return the measure that counts the events of a kind in the last `window_s` seconds."""

    def within(seen: Lookback, keys: Sequence[str]) -> IntArray:
        _, stop = seen.span(kind, keys)
        _, start = seen.span(kind, keys, ago_us=window_s * _US)
        return stop - start

    return within


def _running(seen: Lookback, keys: Sequence[str], weight: str) -> IntArray:
    total = np.zeros(len(seen.submit_us) * len(keys), dtype=np.int64)
    for kind, sign in (("started", 1), ("ended", -1)):
        begin, stop = seen.span(kind, keys)
        sums = seen.history.events[kind].running[weight]
        total += sign * (sums[stop] - sums[begin])
    return total


def running_jobs(seen: Lookback, keys: Sequence[str]) -> IntArray:
    """Return how many jobs had started and not ended."""
    return _running(seen, keys, "jobs")


def running_gpus(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the GPUs held by the jobs that had started and not ended."""
    return _running(seen, keys, "milli_gpus") / 1000


def waiting_jobs(seen: Lookback, keys: Sequence[str]) -> IntArray:
    """Return how many jobs had been submitted and had neither started nor ended."""
    begin, stop = seen.span("submitted", keys)
    begin_ended, stop_ended = seen.span("ended", keys)
    there = (stop - begin) - (stop_ended - begin_ended)
    return there - _running(seen, keys, "jobs")


def running_mean_s(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return how long, on average, the jobs that run have been running (to the second)."""
    jobs = _running(seen, keys, "jobs")
    elapsed = np.repeat(seen.submit_us // _US, len(keys)) * jobs - _running(seen, keys, "start_s")
    return np.where(jobs > 0, elapsed / np.maximum(jobs, 1), np.nan)


def since_end_s(seen: Lookback, keys: Sequence[str]) -> FloatArray:
    """Return the seconds since a job of the key last ended."""
    rows, held = seen.history.events["ended"].newest(*seen.span("ended", keys), 1)
    end_us = seen.history.end_us
    ended = end_us[rows[:, 0]] if len(end_us) else rows[:, 0]
    return np.where(held[:, 0], (np.repeat(seen.submit_us, len(keys)) - ended) / _US, np.nan)


MEASURES: Final[dict[str, Measure]] = {
    "submitted_1min": counted("submitted", 60),
    "submitted_10min": counted("submitted", 600),
    "submitted_1h": counted("submitted", 3600),
    "submitted_6h": counted("submitted", 21_600),
    "submitted_24h": counted("submitted", 86_400),
    "ended_10min": counted("ended", 600),
    "ended_1h": counted("ended", 3600),
    "ended_24h": counted("ended", 86_400),
    "running_jobs": running_jobs,
    "running_gpus": running_gpus,
    "running_mean_s": running_mean_s,
    "waiting_jobs": waiting_jobs,
    "since_end_s": since_end_s,
}
"""Measure name to function of (lookback, keys), answering (n * keys,), job by job."""

_UNIT_OF_SUFFIX: Final = {"_s": "s", "_gpus": "GPUs"}


Plan = Mapping[str, tuple[tuple[str, ...], IntArray]]
"""For each measure its keys and the places it answers."""


def plan(loads: Sequence[Load]) -> Plan:
    """Group `loads` by measure."""
    places = {}
    for measure in dict.fromkeys(look.measure for look in loads):
        here = [place for place, look in enumerate(loads) if look.measure == measure]
        places[measure] = (tuple(loads[p].key for p in here), np.array(here))
    return places


def fill(answers: FloatArray, planned: Plan, seen: Lookback) -> None:
    """Write the loads that were planned into `answers` (loads, n)."""
    for measure, (keys, places) in planned.items():
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

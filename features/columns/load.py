"""Features of the load at submission: the running jobs with the same key, and the time since one of them last ended.

Only jobs submitted strictly before the job count, each in the state it had at the job's submission.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from features.columns.feature import KEY_COLUMNS, Feature, Load, Lookback

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Number = Any  # a number for one key at one moment, or an array for many; measures work on both

_US: Final = 1_000_000


class Moment(Protocol):
    """The history under one key at a moment, or under many keys, each at a moment."""

    @property
    def now_us(self) -> Number:
        """Return the moment, in microseconds."""

    def running(self, weight: str) -> Number:
        """Return the sum of a weight (`history.weights_of`) over the jobs that run at the moment."""

    def since_end_us(self) -> Number:
        """Return the microseconds since the latest end of a job, NaN if none has ended."""

    def per(self, above: Number, below: Number) -> Number:
        """Return the ratio `above` / `below` of whole numbers, NaN where `below` is zero."""


Measure = Callable[[Moment], Number]


def running_mean_s(at: Moment) -> Number:
    """Return the mean seconds that running jobs have run so far; their start times are cut to whole seconds."""
    jobs = at.running("jobs")
    return at.per(at.now_us // _US * jobs - at.running("start_s"), jobs)


MEASURES: Final[dict[str, Measure]] = {
    "running_jobs": lambda at: at.running("jobs"),
    "running_mean_s": running_mean_s,
    "since_end_s": lambda at: at.since_end_us() / _US,
}
"""Measures by name: times in seconds, or a number of jobs."""
STEADY: Final = frozenset({"running_jobs"})
"""Measures that stay equal until the next event under their key; other measures also change with time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """Implement `Moment` for n jobs at their submissions, for several keys of each job.

    Results have shape (n * keys,), with all keys of the first job first.
    """

    seen: Lookback
    keys: Sequence[str]

    @property
    def now_us(self) -> IntArray:
        return np.repeat(self.seen.submit_us, len(self.keys))

    def running(self, weight: str) -> IntArray:
        total = np.zeros(len(self.seen.submit_us) * len(self.keys), dtype=np.int64)
        for kind, sign in (("started", 1), ("ended", -1)):
            begin, stop = self.seen.span(kind, self.keys)
            sums = self.seen.history.events[kind].running[weight]
            total += sign * (sums[stop] - sums[begin])
        return total

    def since_end_us(self) -> FloatArray:
        rows, held = self.seen.history.events["ended"].newest(*self.seen.span("ended", self.keys), 1)
        end_us = self.seen.history.end_us
        ended = end_us[rows[:, 0]] if len(end_us) else rows[:, 0]
        return np.where(held[:, 0], self.now_us - ended, np.nan)

    def per(self, above: IntArray, below: IntArray) -> FloatArray:
        return np.where(below > 0, above / np.maximum(below, 1), np.nan)


Plan = Mapping[str, tuple[tuple[str, ...], IntArray]]
"""For each measure name: the keys to look up, and the row indices of these lookups in the list of load features."""


def plan(loads: Sequence[Load]) -> Plan:
    """Group the lookups `loads` by measure."""
    places = {}
    for measure in dict.fromkeys(look.measure for look in loads):
        here = [place for place, look in enumerate(loads) if look.measure == measure]
        places[measure] = (tuple(loads[p].key for p in here), np.array(here))
    return places


def fill(answers: FloatArray, planned: Plan, seen: Lookback) -> None:
    """Look up the planned load features of n jobs and write them into `answers` (loads, n)."""
    for measure, (keys, places) in planned.items():
        answers[places] = MEASURES[measure](_Moments(seen=seen, keys=keys)).reshape(-1, len(keys)).T


def _feature(load: Load) -> Feature:
    unit = "s" if load.measure.endswith("_s") else "count"
    doc = f"{load.measure} of the same {load.key} at submission"
    return Feature(name=f"{load.key}_{load.measure}", unit=unit, doc=doc, source=load, needs=KEY_COLUMNS)


LOAD_KEYS: Final = ("user", "gpus", "vc_gpus", "like", "all")

LOAD: Final[dict[str, Feature]] = {
    feature.name: feature
    for feature in (_feature(Load(key=key, measure=measure)) for key in LOAD_KEYS for measure in MEASURES)
}

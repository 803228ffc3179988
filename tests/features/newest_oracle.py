"""The newest-submission statistics in plain numpy, as they were before being compiled: frozen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from features.columns.feature import Lookback
from features.history import NEVER, SUBMITTED_DEPTH

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NEWEST_COUNTS = (20, SUBMITTED_DEPTH)
"""Of how many submissions a curve is drawn."""
BURST_GAPS_S = (60, 300, 1800)
"""Submissions of one key closer than this are one burst, at three scales."""

_US = 1_000_000
_SLACK = 1e-12  # a survival of 0.5 made of many factors is not exactly 0.5


@dataclass(frozen=True, kw_only=True)  # no slots: the orders are cached
class Submissions:
    """The newest submissions of n spans, newest first (n, SUBMITTED_DEPTH); times in microseconds."""

    since_us: IntArray
    run_us: IntArray
    held: BoolArray
    started: BoolArray
    ended: BoolArray

    @classmethod
    def of(cls, seen: Lookback, keys: Sequence[str]) -> "Submissions":
        """Look at the newest submissions of every (job, key), job by job."""
        rows, held = seen.history.events["submitted"].newest(*seen.span("submitted", keys), SUBMITTED_DEPTH)
        now = np.repeat(seen.submit_us, len(keys))[:, None]
        submit, start, end = (
            values[rows] if len(values) else np.full(rows.shape, NEVER)
            for values in (seen.history.submit_us, seen.history.start_us, seen.history.end_us)
        )
        started = held & (start < now)
        return cls(
            since_us=np.where(held, now - submit, 0),
            run_us=np.where(started, np.minimum(end, now) - start, 0),
            held=held,
            started=started,
            ended=started & (end < now),
        )

    @cached_property
    def so_far_s(self) -> FloatArray:
        """What each had run by now, in seconds; NaN where it had not started."""
        return np.where(self.started, self.run_us / _US, np.nan)

    @cached_property
    def ranking(self) -> IntArray:
        """The places by run so far, an ended one before a running one of the same length."""
        return np.argsort(self.run_us * 2 + ~self.ended, axis=1, kind="stable")

    @cached_property
    def ranked(self) -> tuple[FloatArray, BoolArray]:
        """The runs so far in seconds and which of them had ended, in their ranking."""
        runs = np.take_along_axis(self.so_far_s, self.ranking, axis=1)
        return runs, np.take_along_axis(self.ended, self.ranking, axis=1)

    @cached_property
    def bursts(self) -> dict[int, BoolArray]:
        """Mark, by gap in seconds, the submissions of the burst that the job continues: no gap reaches it."""
        gaps = np.diff(self.since_us, axis=1, prepend=0)
        return {g: np.logical_and.accumulate(self.held & (gaps < g * _US), axis=1) for g in BURST_GAPS_S}

    @cached_property
    def curves(self) -> dict[str, tuple[FloatArray, BoolArray]]:
        """Kaplan-Meier curves by name, along the ranking: the share still running, and whose runs count.

        References
        ----------
        Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 1958.
        """
        named = {f"newest{n}": self.started & (np.arange(SUBMITTED_DEPTH) < n) for n in NEWEST_COUNTS}
        named |= {f"burst{gap_s}": self.started & among for gap_s, among in self.bursts.items()}
        return {name: self._curve(among) for name, among in named.items()}

    def _curve(self, among: BoolArray) -> tuple[FloatArray, BoolArray]:
        counted = np.take_along_axis(among, self.ranking, axis=1)
        passed = np.cumsum(counted, axis=1, dtype=np.int32)
        at_risk = np.maximum(passed[:, -1:] - passed + 1, 1)
        ended = counted & self.ranked[1]
        surviving: FloatArray = np.cumprod(np.where(ended, (at_risk - 1) / at_risk, 1.0), axis=1, dtype=np.float64)
        return surviving, counted

    def survival_s(self, curve: str, level: float) -> FloatArray:
        """Return the quantile of the run times that a curve gives; the longest run so far where none is reached."""
        surviving, counted = self.curves[curve]
        reached = counted & (surviving <= 1 - level + _SLACK)
        last = counted.shape[1] - 1 - np.argmax(counted[:, ::-1], axis=1)
        place = np.where(reached.any(axis=1), np.argmax(reached, axis=1), last)
        return np.where(counted.any(axis=1), self.ranked[0][np.arange(len(place)), place], np.nan)


Stat = Callable[[Submissions], npt.NDArray[np.generic]]


def so_far(back: int) -> Stat:
    """Return the statistic: what the `back`-th newest submission had run by now."""
    return lambda newest: newest.so_far_s[:, back - 1]


def has_ended(back: int) -> Stat:
    """Return the statistic: whether the `back`-th newest submission had ended (1) or not (0)."""
    return lambda newest: np.where(newest.held[:, back - 1], newest.ended[:, back - 1], np.nan)


def since(back: int) -> Stat:
    """Return the statistic: the seconds since the `back`-th newest submission."""
    return lambda newest: np.where(newest.held[:, back - 1], newest.since_us[:, back - 1] / _US, np.nan)


def survival(curve: str, level: float) -> Stat:
    """Return the statistic: a quantile of a Kaplan-Meier curve."""
    return lambda newest: newest.survival_s(curve, level)


def ended_frac(newest: Submissions) -> FloatArray:
    """Return the share of the 20 newest submissions that had ended."""
    held = newest.held[:, :20].sum(axis=1)
    return np.where(held > 0, newest.ended[:, :20].sum(axis=1) / np.maximum(held, 1), np.nan)


def _newest_ended(newest: Submissions) -> IntArray:
    place: IntArray = np.argmax(newest.ended, axis=1)
    return place


def ended_run_s(newest: Submissions) -> FloatArray:
    """Return the run time of the newest submission that had ended."""
    runs = newest.so_far_s[np.arange(len(newest.held)), _newest_ended(newest)]
    return np.where(newest.ended.any(axis=1), runs, np.nan)


def ended_back(newest: Submissions) -> FloatArray:
    """Return how many submissions are newer than the newest that had ended."""
    return np.where(newest.ended.any(axis=1), _newest_ended(newest), np.nan)


def burst_before(gap_s: int) -> Stat:
    """Return the statistic: how many submissions of the burst came before (0: the job opens one), at most 60."""
    return lambda newest: newest.bursts[gap_s].sum(axis=1)


def burst_age_s(gap_s: int) -> Stat:
    """Return the statistic: the seconds since the burst's first submission (0: the job opens it)."""
    return lambda newest: np.where(newest.bursts[gap_s], newest.since_us, 0).max(axis=1) / _US


def burst_ended_frac(gap_s: int) -> Stat:
    """Return the statistic: the share of the burst's submissions that had ended."""

    def of(newest: Submissions) -> FloatArray:
        burst = newest.bursts[gap_s]
        size = burst.sum(axis=1)
        return np.where(size > 0, (burst & newest.ended).sum(axis=1) / np.maximum(size, 1), np.nan)

    return of


STATS = {
    **{f"newest{k}_so_far_s": (so_far(k), "s") for k in (1, 2, 3, 4, 5)},
    **{f"newest{k}_ended": (has_ended(k), "fraction") for k in (1, 2, 3)},
    **{f"newest{k}_since_s": (since(k), "s") for k in (1, 2, 5, 20)},
    **{
        f"newest_run_s_km{p}_{n}": (survival(f"newest{n}", p / 100), "s")
        for n in NEWEST_COUNTS
        for p in (25, 50, 75, 90)
    },
    "newest_ended_frac": (ended_frac, "fraction"),
    "newest_ended_run_s": (ended_run_s, "s"),
    "newest_ended_back": (ended_back, "count"),
    **{f"burst{g}_before": (burst_before(g), "count") for g in BURST_GAPS_S},
    **{f"burst{g}_age_s": (burst_age_s(g), "s") for g in BURST_GAPS_S},
    **{f"burst{g}_ended_frac": (burst_ended_frac(g), "fraction") for g in BURST_GAPS_S},
    **{f"burst{g}_run_s_km{p}": (survival(f"burst{g}", p / 100), "s") for g in BURST_GAPS_S for p in (50, 90)},
}
"""Statistic name to its function and unit."""

"""Baselines: quantiles of the run times of recent similar jobs.

A history baseline is not fitted. Its forecast is the p50 and p90 of the last run times of jobs with the same key (for
example the same user) that ended before the submission.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.models.metrics import QUANTILES, FloatArray, Forecast, log_run
from pipelines.models.splits import finished

__all__ = ["HISTORY_BASELINES", "UNINFORMED_S", "HistoryBaseline", "Key", "history_forecasts", "key_codes"]

IntArray = npt.NDArray[np.int64]
Key = tuple[str, ...]

LONG_WINDOW: Final = 1000
RECENT_WINDOW: Final = 20

LEAST_ENDED: Final = 3
"""Minimum number of ended jobs of a key below which the next key of the chain is used: p90 would be the maximum."""

UNINFORMED_S: Final = {0.5: 3600.0, 0.9: 36000.0}
"""Forecast in seconds by quantile level for the first jobs of a trace, before any job has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBaseline:
    """A chain of keys, and the maximum number of last ended jobs whose quantiles are the forecast (`window`).

    A key is a tuple of columns; jobs with equal, known values in all of them are similar, under `()` all jobs. The
    first key of the chain with enough ended jobs gives the forecast.
    """

    keys: tuple[Key, ...]
    window: int = LONG_WINDOW


HISTORY_BASELINES: Final[dict[str, HistoryBaseline]] = {
    "user_median": HistoryBaseline(keys=(("user",), ())),
    "group_median": HistoryBaseline(keys=(("group",), ("user",), ())),
    "user_group_gpus_median": HistoryBaseline(keys=(("user", "group", "gpus"), ("group",), ("user",), ())),
    "vc_gpus_median": HistoryBaseline(keys=(("cluster", "vc", "gpus"), ("cluster", "gpus"), ())),
    "gpus_median": HistoryBaseline(keys=(("cluster", "gpus"), ())),
    "recent_20": HistoryBaseline(
        keys=(("group", "role"), ("user", "gpus"), ("cluster", "vc", "gpus"), ("cluster", "gpus"), ()),
        window=RECENT_WINDOW,
    ),
    "global_median": HistoryBaseline(keys=(("cluster",), ())),
}
"""History baselines by name. `gpus` is the GPU count of the whole gang: request times instances. `recent_20` has
the same keys as the history features."""


def applicable(jobs: pl.DataFrame) -> list[str]:
    """Return the names of the baselines whose first key has values in this trace (`user_median` only if it has users).

    `recent_20` always applies: its chain skips columns that the trace lacks.
    """
    jobs = _with_gang(jobs)
    filled = {c for c in jobs.columns if jobs[c].null_count() < jobs.height}
    return [n for n, b in HISTORY_BASELINES.items() if n == "recent_20" or set(b.keys[0]) <= filled]


def history_forecasts(jobs: pl.DataFrame, names: list[str]) -> dict[str, Forecast]:
    """Forecast the run time of every job with every named baseline, from jobs that ended before its submission.

    The history of a job consists of the finished jobs that ended strictly before its `submit_ts`, as in the features.
    Pass jobs of one task type to get medians per type. There is one forecast per name, rows as in
    `jobs`.
    """
    answers: dict[tuple[Key, int], Answers] = {}
    forecasts = {}
    for name in names:
        baseline = HISTORY_BASELINES[name]
        p50 = np.full(jobs.height, np.log(UNINFORMED_S[QUANTILES[0]]))
        p90 = np.full(jobs.height, np.log(UNINFORMED_S[QUANTILES[1]]))
        for key in reversed(baseline.keys):
            if (key, baseline.window) not in answers:
                answers[key, baseline.window] = window_quantiles(jobs, key, baseline.window)
            answer = answers[key, baseline.window]
            enough = answer.ended >= (LEAST_ENDED if key else 1)
            p50, p90 = np.where(enough, answer.p50, p50), np.where(enough, answer.p90, p90)
        forecasts[name] = Forecast(p50=p50, p90=p90)
    return forecasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Quantiles under one key: p50 and p90 of the window at each submission (NaN if empty), and its number of jobs."""

    p50: FloatArray
    p90: FloatArray
    ended: IntArray


def window_quantiles(jobs: pl.DataFrame, key: Key, window: int) -> Answers:
    """Return p50 and p90 of log run time over the last `window` jobs of the same key that ended before each submission.

    One sorted list per key is updated and read in time order: O(n log n) for any window.
    """
    codes = key_codes(jobs, key)
    submit = jobs["submit_ts"].dt.epoch("us").to_numpy()
    ended_rows = np.flatnonzero(jobs.select(finished()).to_series().to_numpy())
    end = jobs["end_ts"].dt.epoch("us").to_numpy()[ended_rows].astype(np.int64)
    log_y = np.full(jobs.height, np.nan)
    log_y[ended_rows] = log_run(jobs["run_s"].to_numpy()[ended_rows])
    # Sort events by key, then time. At equal times submissions come first: only strictly earlier ends are history.
    rows = np.concatenate([np.arange(jobs.height), ended_rows])
    is_end = np.concatenate([np.zeros(jobs.height, dtype=bool), np.ones(len(ended_rows), dtype=bool)])
    order = np.lexsort((rows, is_end, np.concatenate([submit, end]), codes[rows]))
    order = order[codes[rows[order]] >= 0]
    quantiles = np.full((jobs.height, 2), np.nan)
    ended = np.zeros(jobs.height, dtype=np.int64)
    for events in _by_key(codes[rows[order]], order):
        _answer_key(rows[events].tolist(), is_end[events].tolist(), log_y, window, quantiles, ended)
    return Answers(p50=quantiles[:, 0], p90=quantiles[:, 1], ended=ended)


def key_codes(jobs: pl.DataFrame, key: Key) -> IntArray:
    """Return the key of each job as a number 0 to k - 1 (n,); -1 where a column of the key is null."""
    if not key:
        return np.zeros(jobs.height, dtype=np.int64)
    known = pl.all_horizontal([pl.col(c).is_not_null() for c in key])
    codes = _with_gang(jobs).select(pl.when(known).then(pl.struct(key).rank("dense").cast(pl.Int64) - 1).otherwise(-1))
    return codes.to_series().to_numpy()


def _with_gang(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.with_columns(gpus=pl.col("req_gpus") * pl.col("instances"))


def _by_key(codes: IntArray, order: IntArray) -> Iterator[IntArray]:
    borders = np.flatnonzero(np.diff(codes, prepend=-2, append=-2))
    return (order[a:b] for a, b in pairwise(borders.tolist()))


def _answer_key(
    rows: list[int], is_end: list[bool], log_y: FloatArray, window: int, quantiles: FloatArray, ended: IntArray
) -> None:
    """Walk the events of one key in time order; fill in `quantiles` and `ended` at each submission."""
    held: deque[float] = deque()
    ranked: list[float] = []
    for row, ends in zip(rows, is_end, strict=True):
        if ends:
            value = float(log_y[row])
            held.append(value)
            insort(ranked, value)
            if len(held) > window:
                ranked.pop(bisect_left(ranked, held.popleft()))
        elif ranked:
            quantiles[row] = [rank_quantile(ranked, tau) for tau in QUANTILES]
            ended[row] = len(ranked)


def rank_quantile(ranked: list[float], tau: float) -> float:
    """Return the quantile of an ascending list by linear interpolation, as `numpy.quantile` does."""
    at = tau * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (at - low) * (ranked[high] - ranked[low])

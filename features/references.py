"""Reference run times and history forecasts of jobs, and features relative to the references.

A model's output is added to the reference, the run time of recent similar jobs. `features.lookups` computes the same
for single jobs.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.build import build
from features.history import History
from features.sets import named

__all__ = ["BASE_FEATURES", "HISTORY_FORECASTS", "PRIOR_LOG_S", "Referenced", "build_referenced", "relative_columns"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Run times drift by large factors over time. So a model is trained on the log of the ratio between a job's
# run time and a reference: the same quantile of recent similar jobs (key `like`), as known at submission.
WINDOWS: Final = (100, 300, 1000)
QUANTILE_NAMES: Final = ("p50", "p90")
LIKE: Final = {q: tuple(f"like_run_s_{q}_{last}" for last in WINDOWS) for q in QUANTILE_NAMES}
ALL: Final = {q: tuple(f"all_run_s_{q}_{last}" for last in WINDOWS) for q in QUANTILE_NAMES}
REFERENCE_FEATURES: Final = tuple(name for q in QUANTILE_NAMES for name in (*LIKE[q], *ALL[q]))
"""Features to compute references from: run-time quantiles of similar jobs, and of all jobs as a fallback."""

PRIOR_LOG_S: Final = (float(np.log(3600.0)), float(np.log(36000.0)))
"""Log of p50 and p90 of the run time if no earlier job has ended: p50 is one hour, p90 ten hours."""

HISTORY_FORECASTS: Final = {"similar_jobs": ("like", 1000), "same_gpus": ("gpus", 300), "newest_jobs": ("all", 20)}
"""Forecasts from the history alone, by name: p50 and p90 of the newest ended jobs with a key, at most so many."""
HISTORY_FEATURES: Final = tuple(
    f"{key}_run_s_{q}_{last}" for key, last in HISTORY_FORECASTS.values() for q in QUANTILE_NAMES
)
EVIDENCE_FEATURES: Final = ("like_run_s_count_1000", "gpus_run_s_count_300", "all_run_s_count_20")
"""Number of ended jobs behind each of `HISTORY_FORECASTS`, in the same order."""

BASE_FEATURES: Final = (*REFERENCE_FEATURES, *HISTORY_FEATURES, *EVIDENCE_FEATURES)
"""Features from which references, history forecasts and their evidence are computed."""

_SECONDS_OF_RUN: Final = re.compile(r"_run_s_(p\d+|last\d|km\d+)|_so_far_s$|_running_mean_s$|_ended_run_s$")
_LOG_OF_RUN: Final = re.compile(r"_log_run_mean_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """Features of n jobs, and the reference log run times in seconds (n, 2) to add to a model's output.

    In `features`, run-time features are relative to the references, if there are any. `history_log_s` (n, 3, 2) holds
    p50 and p90 of each of `HISTORY_FORECASTS`, and `evidence` (n, 3) the number of ended jobs behind them. Without
    references, it is the prior, and `evidence` is 0.
    """

    features: pl.DataFrame
    reference_log_s: FloatArray
    history_log_s: FloatArray
    evidence: IntArray

    @classmethod
    def absolute(cls, plain: pl.DataFrame, count: int) -> "Referenced":
        """Return features that are not relative: references are 0, and history forecasts are the prior."""
        return cls(
            features=plain,
            reference_log_s=np.zeros((count, len(QUANTILE_NAMES))),
            history_log_s=np.tile(np.array(PRIOR_LOG_S), (count, len(HISTORY_FORECASTS), 1)),
            evidence=np.zeros((count, len(HISTORY_FORECASTS)), dtype=np.int64),
        )

    @classmethod
    def relative(cls, plain: pl.DataFrame, built: pl.DataFrame) -> "Referenced":
        """Return features relative to the references; `built` holds the columns `BASE_FEATURES`."""
        reference = reference_log_s(built)
        return cls(
            features=made_relative(plain, reference[:, 0]),
            reference_log_s=reference,
            history_log_s=history_log_s(built),
            evidence=built.select(pl.col(EVIDENCE_FEATURES).fill_null(0).cast(pl.Int64)).to_numpy(),
        )


def build_referenced(jobs: pl.DataFrame, history: History, names: str | Sequence[str], *, relative: bool) -> Referenced:
    """Build features; with `relative`, replace each run-time feature by its log minus the log of the p50 reference.

    Without `relative`, the features are those that `build` returns, and the references are 0.
    """
    listed = named(names)
    if not relative:
        return Referenced.absolute(build(jobs, history, listed), jobs.height)
    built = build(jobs, history, tuple(dict.fromkeys((*listed, *BASE_FEATURES))))
    return Referenced.relative(built.select(listed), built)


def reference_log_s(frame: pl.DataFrame) -> FloatArray:
    """Return the reference log run times of n jobs for p50 and p90, shape (n, 2).

    A reference is the mean, over the three `WINDOWS`, of the log of that quantile of the run times of similar jobs.
    Where these are unknown, all jobs are used instead, and without any ended job `PRIOR_LOG_S`. `frame` holds the
    columns `REFERENCE_FEATURES`, in seconds.
    """
    columns = [
        _log_mean(LIKE[q]).fill_null(_log_mean(ALL[q])).fill_null(prior).alias(q)
        for q, prior in zip(QUANTILE_NAMES, PRIOR_LOG_S, strict=True)
    ]
    return frame.select(columns).to_numpy().astype(np.float64)


def history_log_s(frame: pl.DataFrame) -> FloatArray:
    """Return log p50 and p90 in seconds of each of `HISTORY_FORECASTS` for n jobs, shape (n, 3, 2).

    An unknown forecast is replaced by the next in the list, the last one by `PRIOR_LOG_S`. `frame` holds the columns
    `HISTORY_FEATURES`, in seconds.
    """
    below = [pl.lit(log_s) for log_s in PRIOR_LOG_S]
    columns: list[pl.Expr] = []
    for name in reversed(HISTORY_FEATURES):
        place = len(columns) % 2
        below[1 - place] = _log(pl.col(name)).fill_null(below[1 - place])
        columns.append(below[1 - place].alias(name))
    found = frame.select(columns[::-1]).to_numpy().astype(np.float64)
    return found.reshape(-1, len(HISTORY_FORECASTS), len(QUANTILE_NAMES))


def log_of(seconds: float) -> float:
    """Return the log of a run time in seconds, at least 0; NaN if it is unknown. Bit-identical to `history_log_s`."""
    return math.nan if seconds != seconds else math.log(max(seconds, 1.0))  # only NaN differs from itself


def log_mean(seconds: Sequence[float]) -> float:
    """Return the mean of the logs of three run times in seconds, leaving out unknown ones; NaN if all are unknown.

    Each of the three is a quantile over one of `WINDOWS`. The result is bit-identical to that of `reference_log_s`.
    """
    logs = [0.0 if s < 1.0 else math.log(s) for s in seconds]
    first, second, third = (0.0 if log != log else log for log in logs)  # only NaN differs from itself
    known = sum(log == log for log in logs)
    return (first + (second + third)) / known if known else math.nan


def relative_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of the run-time features in two lists: those in seconds and those in log seconds."""
    seconds = [name for name in names if _SECONDS_OF_RUN.search(name)]
    return seconds, [name for name in names if _LOG_OF_RUN.search(name)]


def made_relative(frame: pl.DataFrame, reference_log_s: FloatArray) -> pl.DataFrame:
    """Return the frame with every run-time feature replaced by its log minus the job's reference (n,).

    Column names, order and types stay the same, as do counts, shares, requests and categories.
    """
    reference = pl.lit(pl.Series(reference_log_s))
    seconds, logs = relative_columns(frame.columns)
    return frame.with_columns(
        *(_log(pl.col(name)) - reference for name in seconds), *(pl.col(name) - reference for name in logs)
    )


def _log(seconds: pl.Expr) -> pl.Expr:
    return seconds.clip(lower_bound=1.0).log()


def _log_mean(names: tuple[str, ...]) -> pl.Expr:
    return pl.mean_horizontal([_log(pl.col(name)) for name in names])

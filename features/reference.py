"""Run times relative to references: recent log run times of similar jobs (key `like`), as of each submission.

A workload drifts by factors, and trees trained on relative run times drift with it: a predicted quantile is the model's
output plus the same quantile of similar jobs. Nothing is fitted here. Called by training and serving.
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

FloatArray = npt.NDArray[np.float64]

WINDOWS: Final = (100, 300, 1000)
QUANTILE_NAMES: Final = ("p50", "p90")
LIKE: Final = {q: tuple(f"like_run_s_{q}_{last}" for last in WINDOWS) for q in QUANTILE_NAMES}
ALL: Final = {q: tuple(f"all_run_s_{q}_{last}" for last in WINDOWS) for q in QUANTILE_NAMES}
REFERENCE_FEATURES: Final = tuple(name for q in QUANTILE_NAMES for name in (*LIKE[q], *ALL[q]))
"""The features behind references: quantiles of similar jobs, and of all jobs where similar ones have no history."""

UNINFORMED_LOG_S: Final = float(np.log(3600.0))
"""The reference of the first jobs of a trace: one hour."""

_SECONDS_OF_RUN: Final = re.compile(r"_run_s_(p\d+|last\d|km\d+)|_so_far_s$|_running_mean_s$|_ended_run_s$")
_LOG_OF_RUN: Final = re.compile(r"_log_run_mean_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """Features of jobs (n rows), and the reference log run times in seconds (n, 2) to add to a model's output.

    `plain` are the features before, `features` after run times were made relative to the references.
    """

    features: pl.DataFrame
    plain: pl.DataFrame
    reference_log_s: FloatArray


def build_referenced(jobs: pl.DataFrame, history: History, names: str | Sequence[str], *, relative: bool) -> Referenced:
    """Build features; with `relative`, run times become their log minus the p50 reference.

    Without `relative` the features are those of `features.build`, and the references are 0.
    """
    listed = named(names)
    if not relative:
        plain = build(jobs, history, listed)
        return Referenced(features=plain, plain=plain, reference_log_s=np.zeros((jobs.height, 2)))
    built = build(jobs, history, tuple(dict.fromkeys((*listed, *REFERENCE_FEATURES))))
    reference, plain = reference_log_s(built), built.select(listed)
    return Referenced(features=made_relative(plain, reference[:, 0]), plain=plain, reference_log_s=reference)


def reference_log_s(frame: pl.DataFrame) -> FloatArray:
    """Return, for p50 and p90, the mean of the log quantiles over `WINDOWS`, of similar jobs, else of all jobs (n, 2).

    `frame` holds `REFERENCE_FEATURES`, in seconds.

    >>> row = {name: [100.0] for name in LIKE["p50"] + LIKE["p90"]} | {name: [7.0] for name in ALL["p50"] + ALL["p90"]}
    >>> np.exp(reference_log_s(pl.DataFrame(row))).round(6).tolist()
    [[100.0, 100.0]]
    """
    columns = [
        _log_mean(LIKE[q]).fill_null(_log_mean(ALL[q])).fill_null(UNINFORMED_LOG_S).alias(q) for q in QUANTILE_NAMES
    ]
    return frame.select(columns).to_numpy().astype(np.float64)


def log_mean(seconds: Sequence[float]) -> float:
    """Return the mean log of one job's three quantiles as `reference_log_s` computes it, NaN if all are unknown.

    >>> round(log_mean([1.0, math.e, math.nan]), 6)
    0.5
    """
    logs = [0.0 if s < 1.0 else math.log(s) for s in seconds]
    first, second, third = (0.0 if log != log else log for log in logs)  # NaN is not itself
    known = sum(log == log for log in logs)
    return (first + (second + third)) / known if known else math.nan


def relative_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of run-time features: those in seconds, and those already in log seconds."""
    seconds = [name for name in names if _SECONDS_OF_RUN.search(name)]
    return seconds, [name for name in names if _LOG_OF_RUN.search(name)]


def made_relative(frame: pl.DataFrame, reference_log_s: FloatArray) -> pl.DataFrame:
    """Return the frame with every feature that is a run time replaced by its log minus the reference (n,).

    Names, order and types stay; counts, shares, requests and categories stay as they are.
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

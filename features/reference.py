"""Run times seen against a reference: what jobs of the like ran lately, in log seconds, as of each submission.

A workload drifts by factors, and trees that see and answer run times against the reference drift with it; an answer is
raw + reference. Pure functions over `features.build`, and no fitting. Called by training and serving alike.
"""

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

WINDOWS: Final = (20, 100, 300)
LIKE: Final = tuple(f"like_run_s_p50_{last}" for last in WINDOWS)
ALL: Final = tuple(f"all_run_s_p50_{last}" for last in WINDOWS)
REFERENCE_FEATURES: Final = (*LIKE, *ALL)
"""What the reference is made of: medians of the like, and of all jobs where the like has no history."""

UNINFORMED_LOG_S: Final = float(np.log(3600.0))
"""The reference of the first jobs of a trace."""

_SECONDS_OF_RUN: Final = re.compile(r"_run_s_(p\d+|last\d|km\d+)|_so_far_s$|_running_mean_s$|_ended_run_s$")
_LOG_OF_RUN: Final = re.compile(r"_log_run_mean_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """Features of jobs (n rows), and the log run time in seconds that an answer about them is added to (n,)."""

    features: pl.DataFrame
    reference_log_s: FloatArray


def build_referenced(jobs: pl.DataFrame, history: History, names: str | Sequence[str], *, relative: bool) -> Referenced:
    """Build features; with `relative`, those that are run times as their log against the reference.

    Without `relative` the features are as `features.build` makes them, and the reference is 0.
    """
    listed = named(names)
    if not relative:
        return Referenced(features=build(jobs, history, listed), reference_log_s=np.zeros(jobs.height))
    built = build(jobs, history, tuple(dict.fromkeys((*listed, *REFERENCE_FEATURES))))
    against = reference_log_s(built)
    return Referenced(features=made_relative(built.select(listed), against), reference_log_s=against)


def reference_log_s(frame: pl.DataFrame) -> FloatArray:
    """Return the mean of the log medians over `WINDOWS`, of the like, else of all (n,).

    `frame` holds `REFERENCE_FEATURES`, in seconds.

    >>> row = {name: [100.0] for name in LIKE} | {name: [7.0] for name in ALL}
    >>> np.exp(reference_log_s(pl.DataFrame(row))).round(6).tolist()
    [100.0]
    """
    like, every = (frame.select(_log_mean(names)).to_series() for names in (LIKE, ALL))
    return like.fill_null(every).fill_null(UNINFORMED_LOG_S).to_numpy().astype(np.float64)


def made_relative(frame: pl.DataFrame, reference_log_s: FloatArray) -> pl.DataFrame:
    """Return the frame with every feature that is a run time replaced by its log minus the reference (n,).

    Names, order and types stay; counts, shares, requests and categories stay as they are.
    """
    reference = pl.lit(pl.Series(reference_log_s))
    seconds = [name for name in frame.columns if _SECONDS_OF_RUN.search(name)]
    logs = [name for name in frame.columns if _LOG_OF_RUN.search(name)]
    return frame.with_columns(
        *(_log(pl.col(name)) - reference for name in seconds), *(pl.col(name) - reference for name in logs)
    )


def _log(seconds: pl.Expr) -> pl.Expr:
    return seconds.clip(lower_bound=1.0).log()


def _log_mean(names: tuple[str, ...]) -> pl.Expr:
    return pl.mean_horizontal([_log(pl.col(name)) for name in names])

"""The feature engine of training: builds the feature frame of many jobs at once.

It can also express run-time features relative to a reference: the run time of recent similar jobs. Serving uses the
engine in `features.rows`; both give bit-identical values, which `tests/features/test_rows.py` checks. Called by
`modelserve.bundle` and `pipelines.models`; `features.rows` and `features.lookups` use its reference functions.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.columns import load, newest, recency
from features.columns.feature import Load, Lookback, Newest, Recent
from features.columns.request import REQUEST_COLUMNS
from features.errors import ContractError
from features.history import History
from features.sets import FEATURES, named

__all__ = [
    "REFERENCE_FEATURES",
    "Referenced",
    "build",
    "build_referenced",
    "made_relative",
    "reference_log_s",
    "relative_columns",
    "with_requests",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CHUNK_ROWS: Final = 2048
"""Maximum number of jobs looked up in the history at once, which bounds the memory of the lookups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How to compute one list of features.

    `needs` maps each canonical column to read to a feature that reads it. `expressions` compute the features of the
    job's own row, and `changed` the subset that depends on the request. `recent`, `loads` and `submitted` name the
    history features; `windows`, `measures` and `submissions` are the plans to look them up. `of_key` maps each key to
    the rows that its lookups fill in the matrix of history features.
    """

    needs: Mapping[str, str]
    expressions: Mapping[str, pl.Expr]
    changed: Mapping[str, pl.Expr]
    recent: tuple[str, ...]
    loads: tuple[str, ...]
    submitted: tuple[str, ...]
    windows: recency.Plan
    measures: load.Plan
    submissions: newest.Plan
    of_key: Mapping[str, IntArray]

    @property
    def looks(self) -> tuple[str, ...]:
        """Return the names of the history features, in the row order of their matrix."""
        return (*self.recent, *self.loads, *self.submitted)


def build(jobs: pl.DataFrame, history: History, names: str | Sequence[str]) -> pl.DataFrame:
    """Return a frame with one row per job, in the order of `jobs`, and one column per feature; null where unknown.

    `names` lists the features, or is the name of a feature set.

    Raises
    ------
    ContractError
        If a canonical column that a feature reads is missing, or a job belongs to another trace than the history.
    UnknownFeature
        If a name of a feature or feature set is unknown.
    """
    listed = tuple(named(names))
    plan = _plan(listed)
    _check(jobs, history, plan)
    frame = jobs.select(plan.expressions.values()) if plan.expressions else None
    if plan.looks:
        looks = _columns(_look_back(jobs, history, plan), plan.looks)
        frame = looks if frame is None else frame.hstack(looks)
    return pl.DataFrame() if frame is None else frame[list(listed)]


def _columns(matrix: FloatArray, names: Sequence[str]) -> pl.DataFrame:
    """Return a matrix (names, n) as a frame with one column per name; NaN becomes null.

    One series is made and sliced, because one series per column costs more.
    """
    flat = pl.Series(matrix.reshape(-1), nan_to_null=True)
    n = matrix.shape[1]
    if n == 1:
        return flat.to_frame().transpose(column_names=names)
    return pl.DataFrame([flat.slice(i * n, n).alias(name) for i, name in enumerate(names)])


def with_requests(frame: pl.DataFrame, jobs: pl.DataFrame, rows: IntArray, requests: FloatArray) -> pl.DataFrame:
    """Return features under counterfactual requests: row i is job `rows[i]` as if it had requested `requests[i]`.

    `frame` is the result of `build` for `jobs`; `requests` (m, 3) is per instance, in the order of `REQUEST_COLUMNS`,
    NaN for unknown. Only features computed from the job's own request change. History features keep their values, and
    history keys with a GPU count still use the original request.
    """
    plan = _plan(tuple(frame.columns))
    requested = [pl.Series(c, requests[:, i], nan_to_null=True) for i, c in enumerate(REQUEST_COLUMNS)]
    candidates = jobs[rows].with_columns(requested)
    return frame[rows].with_columns(candidates.select(plan.changed.values()).get_columns())


@lru_cache(maxsize=32)
def _plan(names: tuple[str, ...]) -> _Plan:
    needs: dict[str, str] = {}
    expressions, changed = {}, {}
    recent: dict[str, Recent] = {}
    loads: dict[str, Load] = {}
    submissions: dict[str, Newest] = {}
    for feature in (FEATURES[name] for name in named(names)):
        for column in feature.needs:
            needs.setdefault(column, feature.name)
        match feature.source:
            case Recent() as look:
                recent[feature.name] = look
            case Load() as look:
                loads[feature.name] = look
            case Newest() as look:
                submissions[feature.name] = look
            case source:
                own = source.expression()
                expressions[feature.name] = own.cast(feature.dtype).alias(feature.name)
                if feature.from_request:
                    changed[feature.name] = expressions[feature.name]
    looks: list[Recent | Load | Newest] = [*recent.values(), *loads.values(), *submissions.values()]
    keys = np.array([look.key for look in looks])
    return _Plan(
        needs=needs,
        expressions=expressions,
        changed=changed,
        recent=tuple(recent),
        loads=tuple(loads),
        submitted=tuple(submissions),
        windows=recency.plan(tuple(recent.values())),
        measures=load.plan(tuple(loads.values())),
        submissions=newest.plan(tuple(submissions.values())),
        of_key={key: np.flatnonzero(keys == key) for key in dict.fromkeys(keys.tolist())},
    )


def _look_back(jobs: pl.DataFrame, history: History, plan: _Plan) -> FloatArray:
    """Return the history features of all jobs (features, n), computed in chunks of `CHUNK_ROWS` jobs."""
    matrix = np.empty((len(plan.looks), jobs.height))
    recent, loads = len(plan.recent), len(plan.recent) + len(plan.loads)
    for start in range(0, jobs.height, CHUNK_ROWS):
        seen = Lookback.of(jobs[start : start + CHUNK_ROWS], history)
        chunk = matrix[:, start : start + CHUNK_ROWS]
        recency.fill(chunk[:recent], plan.windows, seen)
        load.fill(chunk[recent:loads], plan.measures, seen)
        newest.fill(chunk[loads:], plan.submissions, seen)
        for key, rows in plan.of_key.items():
            unknown = seen.unknown(key)
            if unknown.any():  # jobs with an unknown user do not share a history
                chunk[np.ix_(rows, unknown)] = np.nan
    return matrix


def _check(jobs: pl.DataFrame, history: History, plan: _Plan) -> None:
    present = set(jobs.columns)
    missing = [f"{column} (read by {name})" for column, name in plan.needs.items() if column not in present]
    if missing:
        listing = ", ".join(missing)
        raise ContractError(f"jobs: found no column {listing}; expected the canonical columns, null where unknown")
    if plan.looks and history.trace is not None:
        other = jobs["trace"].filter(jobs["trace"] != history.trace)
        if len(other):
            raise ContractError(
                f"jobs: found the trace {other[0]!r}; expected {history.trace!r}, the history's; "
                "use the history of the jobs' own trace"
            )


# Run times in a workload drift by large factors over time. So a model can be trained on the log of the ratio between a
# job's run time and a reference: the same quantile of recent similar jobs (key `like`), as known at submission. The
# predicted log quantile is the model's output plus the log of the reference.
WINDOWS: Final = (100, 300, 1000)
QUANTILE_NAMES: Final = ("p50", "p90")
LIKE: Final = {q: tuple(f"like_run_s_{q}_{last}" for last in WINDOWS) for q in QUANTILE_NAMES}
ALL: Final = {q: tuple(f"all_run_s_{q}_{last}" for last in WINDOWS) for q in QUANTILE_NAMES}
REFERENCE_FEATURES: Final = tuple(name for q in QUANTILE_NAMES for name in (*LIKE[q], *ALL[q]))
"""Features to compute references from: run-time quantiles of similar jobs, and of all jobs as a fallback."""

UNINFORMED_LOG_S: Final = float(np.log(3600.0))
"""Log of the reference run time where no earlier job has ended: one hour."""

_SECONDS_OF_RUN: Final = re.compile(r"_run_s_(p\d+|last\d|km\d+)|_so_far_s$|_running_mean_s$|_ended_run_s$")
_LOG_OF_RUN: Final = re.compile(r"_log_run_mean_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """Features of n jobs, and the reference log run times in seconds (n, 2) to add to a model's output.

    `plain` holds the features as `build` returns them. In `features`, run-time features are relative to the references.
    """

    features: pl.DataFrame
    plain: pl.DataFrame
    reference_log_s: FloatArray


def build_referenced(jobs: pl.DataFrame, history: History, names: str | Sequence[str], *, relative: bool) -> Referenced:
    """Build features; with `relative`, replace each run-time feature by its log minus the log of the p50 reference.

    Without `relative`, the features are those that `build` returns, and the references are 0.
    """
    listed = named(names)
    if not relative:
        plain = build(jobs, history, listed)
        return Referenced(features=plain, plain=plain, reference_log_s=np.zeros((jobs.height, 2)))
    built = build(jobs, history, tuple(dict.fromkeys((*listed, *REFERENCE_FEATURES))))
    reference, plain = reference_log_s(built), built.select(listed)
    return Referenced(features=made_relative(plain, reference[:, 0]), plain=plain, reference_log_s=reference)


def reference_log_s(frame: pl.DataFrame) -> FloatArray:
    """Return the reference log run times of n jobs for p50 and p90, shape (n, 2).

    A reference is the mean, over the three `WINDOWS`, of the log of that quantile of the run times of similar jobs.
    Where these are unknown, all jobs are used instead, and without any ended job `UNINFORMED_LOG_S`. `frame` holds the
    columns `REFERENCE_FEATURES`, in seconds.

    >>> row = {name: [100.0] for name in LIKE["p50"] + LIKE["p90"]} | {name: [7.0] for name in ALL["p50"] + ALL["p90"]}
    >>> np.exp(reference_log_s(pl.DataFrame(row))).round(6).tolist()
    [[100.0, 100.0]]
    """
    columns = [
        _log_mean(LIKE[q]).fill_null(_log_mean(ALL[q])).fill_null(UNINFORMED_LOG_S).alias(q) for q in QUANTILE_NAMES
    ]
    return frame.select(columns).to_numpy().astype(np.float64)


def log_mean(seconds: Sequence[float]) -> float:
    """Return the mean of the logs of three run times in seconds, leaving out unknown ones; NaN if all are unknown.

    Each of the three is a quantile over one of `WINDOWS`. The result is bit-identical to that of `reference_log_s`.

    >>> round(log_mean([1.0, math.e, math.nan]), 6)
    0.5
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

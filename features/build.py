"""The feature engine of training: builds the feature frame of many jobs at once.

Serving uses the engine in `features.rows`; both give bit-identical values, which `tests/features/test_rows.py` checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.columns import load, newest, recency
from features.columns.feature import Load, Lookback, Newest, Recent
from features.errors import ContractError
from features.history import REQUEST_COLUMNS, History
from features.sets import FEATURES, named

__all__ = ["build", "with_requests"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CHUNK_ROWS: Final = 2048
"""Maximum number of jobs looked up in the history at once, which bounds the memory of the lookups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How to compute one list of features.

    `needs` maps each canonical column to a feature that reads it. `expressions` compute the features of the job's own
    row, `changed` those that depend on the request. `looks` names the history features in the row order of their
    matrix: those of `windows`, `measures`, `submissions`; `borders` are the ends of the first two. `of_key` maps each
    key to its rows.
    """

    needs: Mapping[str, str]
    expressions: Mapping[str, pl.Expr]
    changed: Mapping[str, pl.Expr]
    looks: tuple[str, ...]
    borders: tuple[int, int]
    windows: recency.Plan
    measures: load.Plan
    submissions: newest.Plan
    of_key: Mapping[str, IntArray]


def build(jobs: pl.DataFrame, history: History, names: str | Sequence[str]) -> pl.DataFrame:
    """Return a frame with one row per job, in the order of `jobs`, and one column per feature; null where unknown.

    `names` lists the features, or is the name of a feature set.
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
    looks: dict[str, Recent | Load | Newest] = {**recent, **loads, **submissions}
    keys = np.array([look.key for look in looks.values()])
    return _Plan(
        needs=needs,
        expressions=expressions,
        changed=changed,
        looks=tuple(looks),
        borders=(len(recent), len(recent) + len(loads)),
        windows=recency.plan(tuple(recent.values())),
        measures=load.plan(tuple(loads.values())),
        submissions=newest.plan(tuple(submissions.values())),
        of_key={key: np.flatnonzero(keys == key) for key in dict.fromkeys(keys.tolist())},
    )


def _look_back(jobs: pl.DataFrame, history: History, plan: _Plan) -> FloatArray:
    """Return the history features of all jobs (features, n), computed in chunks of `CHUNK_ROWS` jobs."""
    matrix = np.empty((len(plan.looks), jobs.height))
    recent, loads = plan.borders
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

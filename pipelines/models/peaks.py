"""Fit an upper quantile of the use of one resource; bound the use of similar jobs (same role and request).

`usage` calls this for each resource of a task type, and evaluates the result. Called by `pipelines.models.usage`
and the shrinking study.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import xgboost as xgb

from modelserve.bundle.alike import PARAMETER_SERVER, Alike, alike_key
from pipelines.models import boosting
from pipelines.models.boosting import Boosting, Columns, Matrix, Rows
from pipelines.models.conformal import P90_ADAPTATION, Adaptation, Calibration, adaptive_offsets, static_offset
from pipelines.models.examples import Examples, IntArray
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import Split, leak_key

__all__ = ["UsageRecipe"]

BoolArray = npt.NDArray[np.bool_]

_REQUESTS: Final = {"cpu_cores": "req_cpu_cores", "mem_gib": "req_mem_gib", "gpus": "req_gpus"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A rule for the upper bound of one target: the quantile `level` of the use of similar jobs, times `factor`.

    A factor below 1 slows jobs down: one whose use is exactly the quantile runs longer by 1 / factor.
    """

    level: float
    factor: float


BOUNDS: Final[Mapping[str, Bound]] = {
    "cpu_cores": Bound(level=0.99, factor=1.1),
    "mem_gib": Bound(level=1.0, factor=1.75),
    "gpus": Bound(level=0.95, factor=1.0 / 1.05),
    "gpu_mem_gib": Bound(level=1.0, factor=1.3),
}
"""Rule for each target. A job that exceeds its memory is killed, so bounds of memory are the maximum plus a margin.
With too little GPU compute a job only slows down, and GPUs are scarce, so a slowdown of up to 5 % is accepted, and a
larger one for one job in twenty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeRecipe:
    """Rules for bounding the use of similar jobs, and the minimum number of measured groups below which none is."""

    least_groups: int = 50
    bounds: Mapping[str, Bound] = field(default_factory=lambda: dict(BOUNDS))


def alike_of(jobs: pl.DataFrame, columns: Mapping[str, str], recipe: AlikeRecipe) -> tuple[Alike, ...]:
    """Return the upper bounds for every pair of role and request with enough measured groups, most groups first.

    Use above the request counts as the request: the job was given the excess without requesting it.

    Parameters
    ----------
    jobs
        Measured jobs (n rows) with the columns of their use.
    columns
        Name of the column that measures each target.
    """
    kept = jobs.filter(pl.col("role") != PARAMETER_SERVER)
    if kept.is_empty():
        return ()
    requests = kept.select(pl.col(name).cast(pl.Float64) for name in _REQUESTS.values()).rows()
    keys = [alike_key(role, row) for role, row in zip(kept["role"], requests, strict=True)]
    cells, of_cell = np.unique(["\t".join(key) for key in keys], return_inverse=True)
    groups = np.unique(leak_key(kept).to_numpy(), return_inverse=True)[1]
    needs = {target: _need(kept, target, column) for target, column in columns.items()}
    found = []
    for cell in range(len(cells)):
        rows = np.flatnonzero(of_cell == cell)
        count = len(np.unique(groups[rows]))
        if count < recipe.least_groups:
            continue
        said = {target: _bound(values[rows], recipe.bounds[target]) for target, values in needs.items()}
        first = dict(zip(_REQUESTS, requests[rows[0]], strict=True))
        known = {target: value for target, value in said.items() if value is not None}
        found.append(Alike(role=kept["role"][int(rows[0])], **first, groups=count, needs=known))
    return tuple(sorted(found, key=lambda each: (-each.groups, each.key)))


def _need(jobs: pl.DataFrame, target: str, column: str) -> FloatArray:
    if column not in jobs.columns:
        return np.full(jobs.height, np.nan)
    used = jobs[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    if target not in _REQUESTS:
        return np.asarray(used, dtype=np.float64)
    asked = jobs[_REQUESTS[target]].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.where(np.isnan(used), np.nan, np.fmin(used, asked))


def _bound(needs: FloatArray, bound: Bound) -> float | None:
    measured = needs[~np.isnan(needs)]
    if not len(measured):
        return None
    return static_offset(measured, np.zeros(len(measured)), bound.level) * bound.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecipe:
    """Choices for training usage models: quantile level, features, trees, calibration, and bounds of similar jobs."""

    level: float = 0.95
    features: str = "usage"
    boosting: Boosting = field(
        default_factory=lambda: Boosting(
            rounds=100, patience=30, learning_rate=0.15, num_parallel_tree=1, max_depth=4, colsample_bytree=0.5
        )
    )
    adaptation: Adaptation = P90_ADAPTATION
    alike: AlikeRecipe = field(default_factory=AlikeRecipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The fitted quantile model of one target, and its predictions in log1p of the target's unit.

    `offset` is the calibration offset at the cut. `answered` are the calibrated predictions for the rows `test`, each
    with the offset in force at its submission. `log1p` is log1p of the use of every row, NaN if not measured.
    """

    booster: xgb.Booster
    rounds: int
    offset: float
    trained: IntArray
    test: IntArray
    log1p: FloatArray
    answered: FloatArray


def log1p_use(jobs: pl.DataFrame, column: str) -> FloatArray:
    """Return log1p of a column of use (n,), NaN where it was not measured."""
    if column not in jobs.columns:
        return np.full(jobs.height, np.nan)
    used: FloatArray = np.log1p(jobs[column].fill_null(float("nan")).to_numpy())
    return used


def learnable(split: Split, log1p: FloatArray, least: int) -> bool:
    """Return whether at least `least` training rows are measured, with some for fitting and some for early stopping."""
    known = [int(np.count_nonzero(~np.isnan(log1p[rows]))) for rows in (split.fit, split.stop)]
    return sum(known) >= least and min(known) > 0


def fit_peak(
    examples: Examples,
    split: Split,
    log1p: FloatArray,
    bounded: BoolArray,
    matrix: Matrix,
    columns: Columns,
    recipe: UsageRecipe,
    *,
    until: datetime,
    seed: int,
    nthread: int,
) -> Peak:
    """Fit the quantile of one target: early stopping on the latest measured rows, refit on all, then calibrate.

    The use of `bounded` rows (n,) is only a lower bound. Such a row takes part in the refit if its bound is above the
    prediction of the first fit, and in nothing else. So bounds can raise predictions, but never lower them.
    """
    known = ~np.isnan(log1p) & ~bounded
    fit_rows, stop_rows, test = (rows[known[rows]] for rows in (split.fit, split.stop, split.test))
    trained = np.concatenate([fit_rows, stop_rows])
    least = min(recipe.boosting.min_child_weight, max(1.0, len(trained) / 50))
    grown = replace(recipe.boosting, min_child_weight=least)

    def fit(of: IntArray, watched: IntArray | None, trees: Boosting) -> xgb.Booster:
        stop = None if watched is None else Rows(matrix=matrix[watched], target=log1p[watched])
        rows = Rows(matrix=matrix[of], target=log1p[of])
        return boosting.fit(
            rows, columns, quantiles=(recipe.level,), stop=stop, boosting=trees, seed=seed, nthread=nthread
        )

    first = fit(fit_rows, stop_rows, grown)
    rounds = boosting.rounds_of(first)
    if bounded.any():
        kept = split.train[bounded[split.train] & ~np.isnan(log1p[split.train])]
        trained = np.concatenate([trained, kept[log1p[kept] > boosting.predict(first, matrix[kept])[:, 0]]])
    final = fit(trained, None, replace(grown, rounds=rounds))
    later = np.setdiff1d(np.flatnonzero(known), trained)
    raw = np.full(len(matrix), np.nan)
    raw[stop_rows] = boosting.predict(first, matrix[stop_rows])[:, 0]
    raw[later] = boosting.predict(final, matrix[later])[:, 0]

    def walk(rows: IntArray) -> Calibration:
        return adaptive_offsets(
            submit_us=examples.submit_us[rows],
            end_us=examples.end_us[rows],
            log_y=log1p[rows],
            log_q=raw[rows],
            tau=recipe.level,
            adaptation=recipe.adaptation,
        )

    answered = np.flatnonzero(~np.isnan(raw))
    ended = answered[examples.end_us[answered] < until.timestamp() * 1e6]
    offsets = walk(answered).offsets[np.searchsorted(answered, test)]
    return Peak(
        booster=final,
        rounds=rounds,
        offset=walk(ended).final,
        trained=trained,
        test=test,
        log1p=log1p,
        answered=np.maximum(raw[test] + offsets, 0.0),
    )

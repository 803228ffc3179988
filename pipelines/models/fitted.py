"""Fit one run-time model on one split: early stopping on the latest rows, refit on all, conformal calibration.

Also weights rows for censoring (jobs still running at the cut). Called by `evaluate`, `runtime` and the replay study.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import xgboost as xgb

from features.contract import FeatureContract
from features.vocabulary import Status
from pipelines.models import boosting
from pipelines.models.boosting import Boosting, Columns, Matrix, Rows
from pipelines.models.conformal import (
    P50_ADAPTATION,
    P90_ADAPTATION,
    Adaptation,
    Calibration,
    adaptive_offsets,
    static_offset,
)
from pipelines.models.examples import Examples, contract_of, encoded
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast
from pipelines.models.splits import Split

__all__ = ["Recipe", "calibrated", "fit_runtime"]

WEIGHT_LIMIT: Final = 20.0
"""Maximum weight of an ended job, so that a few long jobs cannot dominate the fit."""


def survival_before(times: FloatArray, events: npt.NDArray[np.bool_], at: FloatArray) -> FloatArray:
    """Return the Kaplan-Meier estimate of P(T >= t) at each t of `at`.

    It is the product of 1 - d(u)/n(u) over the event times u < t, where d(u) is the number of events at u and n(u) the
    number of rows with time >= u.

    >>> survival_before(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True]), np.array([1.0, 3.0, 4.0]))
    array([1.   , 0.75 , 0.375])
    """
    moments, inverse = np.unique(times, return_inverse=True)
    happened = np.bincount(inverse, weights=events.astype(np.float64), minlength=len(moments))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    after = np.concatenate([[1.0], np.cumprod(1.0 - happened / at_risk)])
    return after[np.searchsorted(moments, at, side="left")]


def censoring_weights(ended_run_s: FloatArray, open_run_s: FloatArray) -> FloatArray:
    """Return inverse-probability-of-censoring weights of ended jobs: long jobs stand in for those still running.

    Parameters
    ----------
    ended_run_s
        Run times of the jobs that ended before the cut (n,).
    open_run_s
        Time from start to cut of the jobs still running at the cut (m,): lower bounds of their run times.

    Returns
    -------
    weights
        1 / G(y) of each ended job (n,), at most `WEIGHT_LIMIT`, where G(y) estimates the probability that a run time
        of y is not censored (Kaplan-Meier). All 1 if no job is censored.

    >>> censoring_weights(np.array([1.0, 5.0]), np.array([2.0, 3.0])).round(3).tolist()
    [1.0, 3.0]
    """
    times = np.concatenate([ended_run_s, open_run_s])
    censored = np.concatenate([np.zeros(len(ended_run_s), dtype=bool), np.ones(len(open_run_s), dtype=bool)])
    uncensored_chance = survival_before(times, censored, ended_run_s)
    return 1.0 / np.maximum(uncensored_chance, 1.0 / WEIGHT_LIMIT)


IntArray = npt.NDArray[np.int64]

QUANTILE_NAMES: Final = {0.5: "p50", 0.9: "p90"}

LEAST_ROUNDS: Final = 20
"""Minimum number of boosting rounds: with few stopping rows, early stopping may by chance stop after one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Choices for training a run-time model.

    Attributes
    ----------
    features
        Name of the feature set.
    relative
        Whether to fit log run time minus that of similar jobs (the reference of `features.build`); predictions add
        the reference back.
    boosting
        Parameters of the trees.
    censored
        How to treat jobs still running at the cut. `weights`: give ended jobs of similar length more weight
        (`censoring_weights`). `absent`: leave them out without compensation.
    half_life_days
        Half-life of a row's weight, by its age at the last submission; None weighs all rows equally.
    completed_only
        Whether to train on completed jobs only; failed and killed jobs are judged in either case.
    p50, p90
        Parameters of the adaptive calibration offset of each quantile.
    """

    features: str = "submit"
    relative: bool = True
    boosting: Boosting = field(default_factory=Boosting)
    censored: Literal["weights", "absent"] = "weights"
    half_life_days: float | None = 30.0
    completed_only: bool = False
    p50: Adaptation = P50_ADAPTATION
    p90: Adaptation = P90_ADAPTATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted run-time model, and its uncalibrated predictions for rows that it was not trained on.

    `raw` (n, 2) has the predicted p50 and p90 of log run time. It is NaN for the rows that trees were fitted on; for
    early-stopping rows it comes from the first fit, which excludes them. `trained` are the rows of the final fit.
    """

    contract: FeatureContract
    columns: Columns
    matrix: Matrix
    booster: xgb.Booster
    rounds: int
    raw: FloatArray
    trained: IntArray
    split: Split


def fit_runtime(
    examples: Examples, split: Split, recipe: Recipe, *, until: datetime | None, seed: int, nthread: int
) -> Fitted:
    """Fit the boosters twice: without the early-stopping rows to find the number of rounds, then on all training rows.

    Parameters
    ----------
    until
        The cut, from which the elapsed time of running jobs is computed; None if the split has no cut.
    """
    fit_rows, stop_rows = (_kept(examples.jobs, rows, recipe) for rows in (split.fit, split.stop))
    trained = np.concatenate([fit_rows, stop_rows])
    contract = contract_of(examples.features, trained)
    matrix, columns = encoded(examples.features, contract)
    weights = row_weights(examples, trained, split, recipe, until)
    grown = _scaled(recipe.boosting, len(trained))

    def rows(of: IntArray) -> Rows:
        margin = examples.reference[of] if recipe.relative else None
        return Rows(matrix=matrix[of], target=examples.log_y[of], weights=weights[of], margin=margin)

    options = {"quantiles": QUANTILES, "seed": seed, "nthread": nthread}
    first = boosting.fit(rows(fit_rows), columns, stop=rows(stop_rows), boosting=grown, **options)  # type: ignore[arg-type]  # one dict for two calls
    rounds = max(boosting.rounds_of(first), LEAST_ROUNDS)
    final = boosting.fit(rows(trained), columns, boosting=replace(grown, rounds=rounds), **options)  # type: ignore[arg-type]  # as above
    raw = np.full((len(matrix), len(QUANTILES)), np.nan)
    reference = examples.reference
    raw[stop_rows] = boosting.predict(first, matrix[stop_rows]) + reference[stop_rows]
    unseen = np.setdiff1d(np.arange(len(matrix)), np.concatenate([split.fit, stop_rows]))
    raw[unseen] = boosting.predict(final, matrix[unseen]) + reference[unseen]
    return Fitted(
        contract=contract,
        columns=columns,
        matrix=matrix,
        booster=final,
        rounds=rounds,
        raw=raw,
        trained=np.sort(trained),
        split=split,
    )


def row_weights(
    examples: Examples, trained: IntArray, split: Split, recipe: Recipe, until: datetime | None
) -> FloatArray:
    """Return the weight of every row (n,): censoring times recency weight, scaled to mean 1; 0 if not trained on."""
    weights = np.ones(len(trained))
    if recipe.censored == "weights" and until is not None and len(split.censored):
        open_run_s = examples.open_run_s(split.censored, until)
        weights *= censoring_weights(examples.run_s[trained], open_run_s[open_run_s > 0])
    if recipe.half_life_days is not None:
        submit_us = examples.submit_us[trained]
        weights *= 0.5 ** ((submit_us.max() - submit_us) / 86_400e6 / recipe.half_life_days)
    every = np.zeros(len(examples.log_y))
    every[trained] = weights / weights.mean()
    return every


def calibrated(examples: Examples, fitted: Fitted, recipe: Recipe) -> Forecast:
    """Forecast the test rows: predictions plus the calibration offsets in force at each submission.

    On a time-later split, early-stopping rows, judged rows and all other rows outside the training rows update the
    offsets when their jobs end. Other splits do not order rows by time, so one static offset from the
    early-stopping rows is added.
    """
    split = fitted.split
    if split.name != "time":
        return static_calibrated(examples, fitted)
    rows = np.flatnonzero(~np.isnan(fitted.raw[:, 0]))
    walked = _walk(examples, fitted, rows, recipe)
    judged = np.searchsorted(rows, split.test)
    p50, p90 = (fitted.raw[split.test, i] + walk.offsets[judged] for i, walk in enumerate(walked))
    return Forecast(p50=p50, p90=p90).sorted()


def offsets_at(examples: Examples, fitted: Fitted, recipe: Recipe, until: datetime) -> dict[str, float]:
    """Return the calibration offsets at the cut, learnt from early-stopping rows and others not trained on."""
    answered = np.flatnonzero(~np.isnan(fitted.raw[:, 0]))
    ended = examples.end_us[answered] < until.timestamp() * 1e6
    walked = _walk(examples, fitted, answered[ended], recipe)
    return {QUANTILE_NAMES[tau]: walk.final for tau, walk in zip(QUANTILES, walked, strict=True)}


def static_calibrated(examples: Examples, fitted: Fitted) -> Forecast:
    """Forecast the test rows with a static split-conformal offset on p90, from early-stopping rows; none on p50."""
    stop, test = np.intersect1d(fitted.split.stop, fitted.trained), fitted.split.test
    offset = static_offset(examples.log_y[stop], fitted.raw[stop, 1], QUANTILES[1])
    return Forecast(p50=fitted.raw[test, 0], p90=fitted.raw[test, 1] + offset).sorted()


def _walk(examples: Examples, fitted: Fitted, rows: IntArray, recipe: Recipe) -> list[Calibration]:
    adaptations = (recipe.p50, recipe.p90)
    return [
        adaptive_offsets(
            submit_us=examples.submit_us[rows],
            end_us=examples.end_us[rows],
            log_y=examples.log_y[rows],
            log_q=fitted.raw[rows, output],
            tau=tau,
            adaptation=adaptations[output],
        )
        for output, tau in enumerate(QUANTILES)
    ]


def _kept(jobs: pl.DataFrame, rows: IntArray, recipe: Recipe) -> IntArray:
    if not recipe.completed_only:
        return rows
    completed: IntArray = rows[(jobs["status"] == Status.COMPLETED.value).to_numpy()[rows]]
    return completed


def _scaled(grown: Boosting, rows: int) -> Boosting:
    """Return the parameters with the minimum leaf weight limited to a twentieth of the number of rows."""
    return replace(grown, min_child_weight=min(grown.min_child_weight, max(1.0, rows / 20)))

"""One run-time model on one split: trees stopped on the latest rows, grown again on all, calibrated as jobs end.

Fits and answers; what it is compared with and handed on as is decided in `evaluate` and `runtime`.
Called by `training.runtime`, `training.evaluate` and `training.search`.
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

WEIGHT_LIMIT: Final = 20.0
"""No ended job stands for more than this many jobs, so that a handful of long ones cannot carry the fit."""


def survival_before(times: FloatArray, events: npt.NDArray[np.bool_], at: FloatArray) -> FloatArray:
    """Return the Kaplan-Meier estimate of P(T >= t) at each `at`: the product over event times u < t of 1 - d(u)/n(u).

    d(u) is the number of events at u, n(u) the number of rows with time >= u.

    >>> survival_before(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True]), np.array([1.0, 3.0, 4.0]))
    array([1.   , 0.75 , 0.375])
    """
    moments, inverse = np.unique(times, return_inverse=True)
    happened = np.bincount(inverse, weights=events.astype(np.float64), minlength=len(moments))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    after = np.concatenate([[1.0], np.cumprod(1.0 - happened / at_risk)])
    return after[np.searchsorted(moments, at, side="left")]


def censoring_weights(ended_run_s: FloatArray, open_run_s: FloatArray) -> FloatArray:
    """Weigh each ended job by one over the chance that a job of its length had ended by the cut.

    Parameters
    ----------
    ended_run_s
        Run times of the jobs that ended before the cut (n,).
    open_run_s
        Time from start to cut of the jobs still running at it (m,): lower bounds of their run times.

    Returns
    -------
    weights
        1 / G(y), G the Kaplan-Meier survival of the censoring time; at most `WEIGHT_LIMIT`; all 1 when nothing is
        censored (n,).

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
"""Rounds grown at least: a handful of stopping rows may stop at the first by luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a run-time model is trained; every field is a choice that was searched or may be compared.

    Attributes
    ----------
    features
        Name of the feature set.
    relative
        Learn log run time against the reference of the like (`features.reference`); an answer is raw + reference.
    boosting
        How trees are grown.
    censored
        `weights`: jobs still running at the cut give their weight to the ended jobs that are as long;
        `absent`: they are left out.
    half_life_days
        Weight of a row halves with every so many days between its submission and the last fitted one; None: all alike.
    completed_only
        Train on completed jobs only; the judged rows stay all finished jobs.
    p50, p90
        How the offsets adapt.
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
    """A fitted run-time model, and the raw quantiles of log run time (n, 2) it gave the rows it never saw.

    `raw` is NaN for the fitted rows only; for the stopping rows it is the answer of the first trees, which had not
    seen them. `trained` are the rows the final trees saw.
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
    """Fit on the split's training rows: first to find the rounds and the stopping rows' misses, then on all of them.

    Parameters
    ----------
    until
        The cut, to know how long the censored rows had run; None where the split has none.
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
    """Return the weight of every row (n,): censoring times recency, mean 1 over the trained rows, 0 elsewhere."""
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
    """Answer the test rows, each with the offsets that stood at its submission.

    On a time-later split the misses of the stopping rows and of all rows that were not learnt from teach, the judged
    ones among them, each when its job ends. Elsewhere time does not order the rows, and the static offset of the
    stopping rows is added.
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
    """Return the offsets that stand at the cut: taught by the rows that had ended and were not fitted."""
    answered = np.flatnonzero(~np.isnan(fitted.raw[:, 0]))
    ended = examples.end_us[answered] < until.timestamp() * 1e6
    walked = _walk(examples, fitted, answered[ended], recipe)
    return {QUANTILE_NAMES[tau]: walk.final for tau, walk in zip(QUANTILES, walked, strict=True)}


def static_calibrated(examples: Examples, fitted: Fitted) -> Forecast:
    """Answer the test rows with p90 shifted by split conformal on the stopping rows; p50 stands as it is."""
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
    """Let leaves be smaller where there are few rows: a twentieth of them at most."""
    return replace(grown, min_child_weight=min(grown.min_child_weight, max(1.0, rows / 20)))

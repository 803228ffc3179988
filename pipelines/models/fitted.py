"""Fit one run-time model on one split: XGBoost, a forest, and the weights of their combination with the history."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from features.contract import FeatureContract
from modelserve.bundle.card import COMBINABLE, FITTED, TYPICAL, TYPICAL_JOBS
from modelserve.bundle.combination import Combination, forecasts_of
from pipelines.models import boosting
from pipelines.models.boosting import Boosting, Columns, FittedForest, Matrix, Rows, fit_forest
from pipelines.models.examples import Examples, contract_of, encoded
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast
from pipelines.models.recipes import Recipe
from pipelines.models.splits import Split

__all__ = ["FEATURES", "combined", "fit_runtime"]

IntArray = npt.NDArray[np.int64]

FEATURES: Final = "submit"
"""Feature set of run-time models."""

LEAST_TRAINED: Final = 60
"""Minimum number of training rows below which no trees are grown."""

UNTRAINED: Final = tuple(each for each in COMBINABLE if each not in FITTED)
"""Members that need no training."""

LEAST_ROUNDS: Final = 20
"""Minimum number of boosting rounds: with few stopping rows, early stopping may by chance stop after one."""

WEIGHT_LIMIT: Final = 20.0
"""Maximum weight of an ended job, so that a few long jobs cannot dominate the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted run-time model: XGBoost, a forest, and how they are combined with forecasts from the history.

    `forecasts` (n, members, 2) are p50 and p90 of log run time of each member, NaN for the rows that trees were fitted
    on; for early-stopping rows they come from first fits, which exclude them. `trained` are the rows of the final fits.
    If they are too few for trees, `forest` is None and the booster answers 0. `start` is the combination before any job
    has ended. `typical_s` are p50 and p90 of the run time of the training rows that ended last.
    """

    contract: FeatureContract
    columns: Columns
    matrix: Matrix
    booster: xgb.Booster
    forest: FittedForest | None
    rounds: int
    forecasts: FloatArray
    start: Combination
    typical_s: tuple[float, float]
    trained: IntArray
    split: Split

    def of_member(self, name: str, rows: IntArray) -> Forecast:
        """Return the forecast of one member, or the typical answer, for some rows."""
        if name == TYPICAL:
            p50, p90 = (np.full(len(rows), np.log(seconds)) for seconds in self.typical_s)
            return Forecast(p50=p50, p90=p90)
        own = self.forecasts[rows, self.start.members.index(name)]
        return Forecast(p50=own[:, 0], p90=own[:, 1])


def fit_runtime(
    examples: Examples, split: Split, recipe: Recipe, *, until: datetime | None, seed: int, nthread: int
) -> Fitted:
    """Fit trees twice: without the early-stopping rows to find the number of rounds, then on all training rows.

    `until` is the cut, from which the elapsed time of running jobs is computed; None if the split has no cut.
    """
    trained = split.train
    contract = contract_of(examples.features, trained)
    matrix, columns = encoded(examples.features, contract)
    if len(trained) < LEAST_TRAINED or not len(split.fit) or not len(split.stop):
        members = UNTRAINED
        booster, forest, rounds = boosting.constant(columns, quantiles=QUANTILES), None, 0
        forecasts = forecasts_of(
            members,
            xgboost=examples.reference,
            forest=None,
            reference_log_s=examples.reference,
            history_log_s=examples.history,
        )
    else:
        members = COMBINABLE
        weights = row_weights(examples, split, until, half_life_days=recipe.half_life_days)
        trees = _Trees(examples=examples, matrix=matrix, columns=columns, weights=weights, seed=seed, nthread=nthread)
        booster, forest, forecasts = trees.fit(split, recipe.boosting)
        rounds = boosting.rounds_of(booster)
    return Fitted(
        contract=contract,
        columns=columns,
        matrix=matrix,
        booster=booster,
        forest=forest,
        rounds=rounds,
        forecasts=forecasts,
        start=Combination.new(members, rows=len(trained)),
        typical_s=typical_s(examples, trained),
        trained=np.sort(trained),
        split=split,
    )


def typical_s(examples: Examples, rows: IntArray) -> tuple[float, float]:
    """Return p50 and p90 of the run times in seconds of the `TYPICAL_JOBS` of these rows that ended last."""
    newest = rows[np.argsort(examples.end_us[rows], kind="stable")][-TYPICAL_JOBS:]
    p50, p90 = np.exp(np.quantile(examples.log_y[newest], QUANTILES)).tolist()
    return p50, p90


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trees:
    """The rows that both kinds of trees are fitted to."""

    examples: Examples
    matrix: Matrix
    columns: Columns
    weights: FloatArray
    seed: int
    nthread: int

    def fit(self, split: Split, parameters: Boosting) -> tuple[xgb.Booster, FittedForest, FloatArray]:
        """Return the final booster and forest, and the forecasts of all members."""
        trained, reference = split.train, self.examples.reference
        unseen = np.setdiff1d(np.arange(len(self.matrix)), trained)
        least = min(parameters.min_child_weight, max(1.0, len(trained) / 20))
        grown = replace(parameters, min_child_weight=least)
        first = self._boosted(split.fit, grown, self._rows(split.stop))
        final = self._boosted(trained, replace(grown, rounds=max(boosting.rounds_of(first), LEAST_ROUNDS)))
        forests = [self._forest(of) for of in (split.fit, trained)]
        by_trees = np.full((2, len(self.matrix), len(QUANTILES)), np.nan)
        for booster, forest, of in ((first, forests[0], split.stop), (final, forests[1], unseen)):
            by_trees[0, of] = boosting.predict(booster, self.matrix[of]) + reference[of]
            by_trees[1, of] = forest.forest.rows(self.matrix[of]) + reference[of, :1]
        forecasts = forecasts_of(
            COMBINABLE,
            xgboost=by_trees[0],
            forest=by_trees[1],
            reference_log_s=reference,
            history_log_s=self.examples.history,
        )
        return final, forests[1], forecasts

    def _boosted(self, of: IntArray, parameters: Boosting, stop: Rows | None = None) -> xgb.Booster:
        return boosting.fit(
            self._rows(of),
            self.columns,
            quantiles=QUANTILES,
            stop=stop,
            boosting=parameters,
            seed=self.seed,
            nthread=self.nthread,
        )

    def _rows(self, of: IntArray) -> Rows:
        return Rows(
            matrix=self.matrix[of],
            target=self.examples.log_y[of],
            weights=self.weights[of],
            margin=self.examples.reference[of],
        )

    def _forest(self, of: IntArray) -> FittedForest:
        target = self.examples.log_y[of] - self.examples.reference[of, 0]
        return fit_forest(self.matrix[of], target, seed=self.seed, nthread=self.nthread)


def combined(examples: Examples, fitted: Fitted) -> Forecast:
    """Forecast the test rows with the combination: weights and p90 offset as in force at each submission.

    On a time-later split, all rows outside the training rows, and the early-stopping rows, update the combination when
    their jobs end. Other splits do not order rows by time: there it learns from the early-stopping rows only.
    """
    rows, test = _answered(fitted), fitted.split.test
    if fitted.split.name == "time":
        of_rows, _ = _walk(examples, fitted.start, fitted.forecasts, rows)
        out = of_rows[np.searchsorted(rows, test)]
    else:
        _, learnt = _walk(examples, fitted.start, fitted.forecasts, np.intersect1d(fitted.split.stop, rows))
        out = learnt.combined(fitted.forecasts[test])
    return Forecast(p50=out[:, 0], p90=out[:, 1])


def combination_at(
    examples: Examples, fitted: Fitted, until: datetime, *, only: Sequence[str] | None = None
) -> Combination:
    """Return the combination at the cut, learnt from early-stopping rows and others not trained on.

    `only` names the members to combine; by default all. The typical answer does not learn.
    """
    start, forecasts = fitted.start, fitted.forecasts
    if only is not None and TYPICAL in only:
        return Combination.new(only, rows=len(fitted.trained))
    if only is not None:
        places = [start.members.index(each) for each in only]
        start, forecasts = Combination.new(only, rows=len(fitted.trained)), forecasts[:, places]
    rows = _answered(fitted)
    return _walk(examples, start, forecasts, rows[examples.end_us[rows] < until.timestamp() * 1e6])[1]


def _answered(fitted: Fitted) -> IntArray:
    return np.flatnonzero(~np.isnan(fitted.forecasts[:, 0, 0]))


def _walk(
    examples: Examples, start: Combination, forecasts: FloatArray, rows: IntArray
) -> tuple[FloatArray, Combination]:
    return start.walked(
        submit_us=examples.submit_us[rows],
        end_us=examples.end_us[rows],
        forecasts=forecasts[rows],
        log_y=examples.log_y[rows],
    )


def row_weights(
    examples: Examples, split: Split, until: datetime | None, *, half_life_days: float | None
) -> FloatArray:
    """Return the weight of every row (n,): censoring times recency weight, scaled to mean 1; 0 if not trained on."""
    trained = split.train
    weights = np.ones(len(trained))
    if until is not None and len(split.censored):
        open_run_s = examples.open_run_s(split.censored, until)
        weights *= censoring_weights(examples.run_s[trained], open_run_s[open_run_s > 0])
    if half_life_days is not None:
        submit_us = examples.submit_us[trained]
        weights *= 0.5 ** ((submit_us.max() - submit_us) / 86_400e6 / half_life_days)
    every = np.zeros(len(examples.log_y))
    every[trained] = weights / weights.mean()
    return every


def censoring_weights(ended_run_s: FloatArray, open_run_s: FloatArray) -> FloatArray:
    """Return inverse-probability-of-censoring weights of ended jobs (n,): long jobs stand in for those still running.

    `ended_run_s` (n,) are the run times of jobs that ended before the cut; `open_run_s` (m,) the times from start to
    cut of those still running. A weight is 1 / G(y), at most `WEIGHT_LIMIT`, where G(y) estimates the probability that
    a run time of y is not censored (Kaplan-Meier). All weights are 1 if no job is censored.
    """
    times = np.concatenate([ended_run_s, open_run_s])
    censored = np.concatenate([np.zeros(len(ended_run_s), dtype=bool), np.ones(len(open_run_s), dtype=bool)])
    uncensored_chance = survival_before(times, censored, ended_run_s)
    return 1.0 / np.maximum(uncensored_chance, 1.0 / WEIGHT_LIMIT)


def survival_before(times: FloatArray, events: npt.NDArray[np.bool_], at: FloatArray) -> FloatArray:
    """Return the Kaplan-Meier estimate of P(T >= t) at each t of `at`: the product of 1 - d(u)/n(u) over u < t."""
    moments, inverse = np.unique(times, return_inverse=True)
    happened = np.bincount(inverse, weights=events.astype(np.float64), minlength=len(moments))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    after = np.concatenate([[1.0], np.cumprod(1.0 - happened / at_risk)])
    return after[np.searchsorted(moments, at, side="left")]

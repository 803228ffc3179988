"""Fit one run-time model on one split: XGBoost, a forest, and the weights of their combination with the history.

Row weights are in `weighting`. Called by `evaluate`, `runtime` and the replay study.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import xgboost as xgb

from features.contract import FeatureContract
from features.vocabulary import Status
from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.combination import FITTED, Combination, forecasts_of
from pipelines.models import boosting
from pipelines.models.boosting import Boosting, Columns, Matrix, Rows
from pipelines.models.examples import Examples, contract_of, encoded
from pipelines.models.forest import FittedForest, fit_forest
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast
from pipelines.models.splits import Split
from pipelines.models.weighting import row_weights

__all__ = ["Recipe", "combined", "fit_runtime", "untrained"]

IntArray = npt.NDArray[np.int64]

LEAST_TRAINED: Final = 60
"""Minimum number of training rows below which no trees are grown."""

UNTRAINED: Final = tuple(each for each in COMBINABLE if each not in FITTED)
"""Members that need no training."""

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
        Whether to train trees on completed jobs only; failed and killed jobs are judged in either case.
    """

    features: str = "submit"
    relative: bool = True
    boosting: Boosting = field(default_factory=Boosting)
    censored: Literal["weights", "absent"] = "weights"
    half_life_days: float | None = 30.0
    completed_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted run-time model: XGBoost, a forest, and how they are combined with forecasts from the history.

    `forecasts` (n, members, 2) holds the p50 and p90 of log run time that each member forecasts. It is NaN for the rows
    that trees were fitted on; for early-stopping rows it comes from first fits, which exclude them. `trained` are the
    rows of the final fits. With fewer than `LEAST_TRAINED` of them, or without rows to fit on or to stop early on, no
    trees are grown: `forest` is None, and the booster answers 0, that is the reference. `start` is the combination
    before any job has ended.
    """

    contract: FeatureContract
    columns: Columns
    matrix: Matrix
    booster: xgb.Booster
    forest: FittedForest | None
    rounds: int
    forecasts: FloatArray
    start: Combination
    trained: IntArray
    split: Split

    def of_member(self, name: str, rows: IntArray) -> Forecast:
        """Return the forecast of one member for some rows."""
        found = self.forecasts[rows, self.start.members.index(name)]
        return Forecast(p50=found[:, 0], p90=found[:, 1])


def fit_runtime(
    examples: Examples, split: Split, recipe: Recipe, *, until: datetime | None, seed: int, nthread: int
) -> Fitted:
    """Fit trees twice: without the early-stopping rows to find the number of rounds, then on all training rows.

    Parameters
    ----------
    until
        The cut, from which the elapsed time of running jobs is computed; None if the split has no cut.
    """
    fit_rows, stop_rows = (_kept(examples.jobs, rows, recipe) for rows in (split.fit, split.stop))
    trained = np.concatenate([fit_rows, stop_rows])
    contract = contract_of(examples.features, trained)
    matrix, columns = encoded(examples.features, contract)
    if len(trained) < LEAST_TRAINED or not len(fit_rows) or not len(stop_rows):
        members = UNTRAINED
        booster, forest, rounds = boosting.constant(columns, quantiles=QUANTILES), None, 0
        forecasts = _forecasts(examples, members, None, None)
    else:
        members = COMBINABLE
        trees = _Trees(examples=examples, matrix=matrix, columns=columns, seed=seed, nthread=nthread)
        weights = row_weights(
            examples, trained, split, until, censored=recipe.censored, half_life_days=recipe.half_life_days
        )
        booster, forest, forecasts = trees.fit(fit_rows, stop_rows, split, recipe, weights)
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
        trained=np.sort(trained),
        split=split,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trees:
    """The rows that both kinds of trees are fitted to."""

    examples: Examples
    matrix: Matrix
    columns: Columns
    seed: int
    nthread: int

    def fit(
        self, fit_rows: IntArray, stop_rows: IntArray, split: Split, recipe: Recipe, weights: FloatArray
    ) -> tuple[xgb.Booster, FittedForest, FloatArray]:
        """Return the final booster and forest, and the forecasts of all members."""
        trained, reference = np.concatenate([fit_rows, stop_rows]), self.examples.reference
        unseen = np.setdiff1d(np.arange(len(self.matrix)), np.concatenate([split.fit, stop_rows]))
        grown = _scaled(recipe.boosting, len(trained))

        def boosted(of: IntArray, how: Boosting, stop: Rows | None = None) -> xgb.Booster:
            fitted = rows(of)
            return boosting.fit(
                fitted, self.columns, quantiles=QUANTILES, stop=stop, boosting=how, seed=self.seed, nthread=self.nthread
            )

        def rows(of: IntArray) -> Rows:
            margin = reference[of] if recipe.relative else None
            return Rows(matrix=self.matrix[of], target=self.examples.log_y[of], weights=weights[of], margin=margin)

        first = boosted(fit_rows, grown, rows(stop_rows))
        final = boosted(trained, replace(grown, rounds=max(boosting.rounds_of(first), LEAST_ROUNDS)))
        forests = [self._forest(of) for of in (fit_rows, trained)]
        by_trees = np.full((2, len(self.matrix), len(QUANTILES)), np.nan)
        for booster, forest, of in ((first, forests[0], stop_rows), (final, forests[1], unseen)):
            by_trees[0, of] = boosting.predict(booster, self.matrix[of]) + reference[of]
            by_trees[1, of] = forest.forest.rows(self.matrix[of]) + reference[of, :1]
        return final, forests[1], _forecasts(self.examples, COMBINABLE, by_trees[0], by_trees[1])

    def _forest(self, of: IntArray) -> FittedForest:
        target = self.examples.log_y[of] - self.examples.reference[of, 0]
        return fit_forest(self.matrix[of], target, seed=self.seed, nthread=self.nthread)


def _forecasts(
    examples: Examples, members: Sequence[str], xgboost: FloatArray | None, forest: FloatArray | None
) -> FloatArray:
    reference = examples.reference
    return forecasts_of(
        members,
        xgboost=reference if xgboost is None else xgboost,
        forest=forest,
        reference_log_s=reference,
        history_log_s=examples.history,
    )


def combined(examples: Examples, fitted: Fitted, *, only: Sequence[str] | None = None) -> Forecast:
    """Forecast the test rows with the combination: weights and p90 offset as in force at each submission.

    On a time-later split, early-stopping rows, judged rows and all other rows outside the training rows update the
    combination when their jobs end. Other splits do not order rows by time: there the combination learns from the
    early-stopping rows only. `only` names the members to combine; by default all.
    """
    start, forecasts = _of_members(fitted, only)
    rows, test = _answered(fitted), fitted.split.test
    if fitted.split.name == "time":
        out, _ = _walk(examples, start, forecasts, rows)
        found = out[np.searchsorted(rows, test)]
    else:
        _, learnt = _walk(examples, start, forecasts, np.intersect1d(fitted.split.stop, rows))
        found = learnt.combined(forecasts[test])
    return Forecast(p50=found[:, 0], p90=found[:, 1])


def untrained(examples: Examples) -> Forecast:
    """Forecast every row from the history, without a trained model.

    The weights of the combination are learnt as jobs end, beginning with the first.
    """
    start = Combination.new(UNTRAINED, rows=0)
    rows = np.arange(len(examples.log_y))
    found, _ = _walk(examples, start, _forecasts(examples, UNTRAINED, None, None), rows)
    return Forecast(p50=found[:, 0], p90=found[:, 1])


def combination_at(
    examples: Examples, fitted: Fitted, until: datetime, *, only: Sequence[str] | None = None
) -> Combination:
    """Return the combination at the cut, learnt from early-stopping rows and others not trained on."""
    start, forecasts = _of_members(fitted, only)
    rows = _answered(fitted)
    return _walk(examples, start, forecasts, rows[examples.end_us[rows] < until.timestamp() * 1e6])[1]


def _answered(fitted: Fitted) -> IntArray:
    return np.flatnonzero(~np.isnan(fitted.forecasts[:, 0, 0]))


def _of_members(fitted: Fitted, only: Sequence[str] | None) -> tuple[Combination, FloatArray]:
    if only is None:
        return fitted.start, fitted.forecasts
    places = [fitted.start.members.index(each) for each in only]
    return Combination.new(only, rows=len(fitted.trained)), fitted.forecasts[:, places]


def _walk(
    examples: Examples, start: Combination, forecasts: FloatArray, rows: IntArray
) -> tuple[FloatArray, Combination]:
    return start.walked(
        submit_us=examples.submit_us[rows],
        end_us=examples.end_us[rows],
        forecasts=forecasts[rows],
        log_y=examples.log_y[rows],
    )


def _kept(jobs: pl.DataFrame, rows: IntArray, recipe: Recipe) -> IntArray:
    if not recipe.completed_only:
        return rows
    completed: IntArray = rows[(jobs["status"] == Status.COMPLETED.value).to_numpy()[rows]]
    return completed


def _scaled(grown: Boosting, rows: int) -> Boosting:
    """Return the parameters with the minimum leaf weight limited to a twentieth of the number of rows."""
    return replace(grown, min_child_weight=min(grown.min_child_weight, max(1.0, rows / 20)))

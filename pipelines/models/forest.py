"""The random forest baseline: quantiles from the run times that share a leaf, on the features XGBoost is given.

A quantile regression forest with bounded trees, rows per tree and values per leaf, so that it stays cheap.
Called by `training.evaluate` and `training.replication`.

References: Breiman, "Random Forests" (2001); Meinshausen, "Quantile Regression Forests", JMLR 7 (2006).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestRegressor

from pipelines.models.boosting import Matrix, Rows
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Bounds of the forest: trees, training rows each tree draws, rows a leaf keeps at least, values a leaf lends."""

    trees: int = 60
    rows_per_tree: int = 15_000
    least_leaf: int = 20
    values_per_leaf: int = 8
    features_share: float = 1 / 3


def forest_forecast(
    rows: Rows, judged: Matrix, *, seed: int, nthread: int = 1, forest: Forest | None = None
) -> Forecast:
    """Fit on log run time, and answer the p50 and p90 of values drawn from each judged row's leaves.

    Each tree lends `values_per_leaf` training values, drawn by lot from the leaf a judged row falls in, so every
    tree has one voice as in Meinshausen's weights. Categories enter as their codes.
    """
    forest = forest or Forest()
    fitted = fit_forest(rows, seed=seed, nthread=nthread, forest=forest)
    rng = np.random.default_rng(seed)
    lent = [
        _lend(tree.apply(rows.matrix), tree.apply(judged), rows.target, forest.values_per_leaf, rng)
        for tree in (t.tree_ for t in fitted.estimators_)
    ]
    p50, p90 = np.quantile(np.concatenate(lent, axis=1), QUANTILES, axis=1)
    return Forecast(p50=p50, p90=p90)


def fit_forest(rows: Rows, *, seed: int, nthread: int, forest: Forest | None = None) -> RandomForestRegressor:
    """Fit the bounded forest on squared error; its `predict` is the mean that the paper's own set-up uses."""
    forest = forest or Forest()
    regressor = RandomForestRegressor(
        n_estimators=forest.trees,
        min_samples_leaf=min(forest.least_leaf, max(1, len(rows.target) // 20)),
        max_features=forest.features_share,
        max_samples=min(1.0, forest.rows_per_tree / len(rows.target)),
        n_jobs=nthread,
        random_state=seed,
    )
    return regressor.fit(rows.matrix, rows.target, sample_weight=rows.weights)


def _lend(
    leaves: IntArray, judged_leaves: IntArray, target: FloatArray, values: int, rng: np.random.Generator
) -> FloatArray:
    """Draw `values` training values from the leaf of each judged row, with replacement (judged, values)."""
    order = np.argsort(leaves, kind="stable")
    sizes = np.bincount(leaves)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    places = rng.random((len(judged_leaves), values)) * sizes[judged_leaves, None]
    lent: FloatArray = target[order[starts[judged_leaves, None] + places.astype(np.int64)]]
    return lent

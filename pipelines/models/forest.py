"""Fit the quantile regression forest: XGBoost grows the trees on squared error, and leaves sample training values.

How its quantiles are computed is in `modelserve.bundle.quantile_forest`. Called by `pipelines.models.fitted`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import xgboost as xgb

from modelserve.bundle.quantile_forest import VALUES_PER_LEAF, QuantileForest
from modelserve.bundle.trees.forest import read_forest
from pipelines.models.boosting import Matrix
from pipelines.models.metrics import FloatArray

__all__ = ["FittedForest"]

TREES: Final = 60
ROWS_PER_TREE: Final = 15_000
LEAST_LEAF: Final = 20
FEATURES_SHARE: Final = 1 / 3
"""Share of the columns from which each node chooses, if that is more than `LEAST_FEATURES`."""
LEAST_FEATURES: Final = 4
"""Number of columns from which each node chooses at least, or all if there are fewer.

A node that may choose only columns without a split becomes a leaf. With 3 or 4 columns, a third is one: on made rows
the trees then had 50 to 75 % of the leaves, and the pinball loss was 15 to 28 % higher.
"""
BINS: Final = 64
SMALL_SHARE: Final = 0.8
"""Share of the rows that each tree is grown on if there are at most `ROWS_PER_TREE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedForest:
    """A fitted forest, and the two files of a bundle that hold it."""

    trees: bytes
    forest: QuantileForest

    @property
    def values(self) -> bytes:
        """The values of the leaves, as in the bundle's file."""
        return self.forest.stored


def fit_forest(matrix: Matrix, target: FloatArray, *, seed: int, nthread: int) -> FittedForest:
    """Fit a forest to rows (n, k) and their log run times minus the reference p50 (n,).

    Each leaf samples `VALUES_PER_LEAF` of the training values that reach it, with replacement.
    """
    params = {
        "objective": "reg:squarederror",
        "num_parallel_tree": TREES,
        "learning_rate": 1.0,
        "subsample": min(SMALL_SHARE, ROWS_PER_TREE / len(target)),
        "colsample_bynode": features_share(matrix.shape[1]),
        "max_depth": 32,
        "min_child_weight": float(min(LEAST_LEAF, max(1, len(target) // 40))),
        "reg_lambda": 0.0,
        "base_score": 0.0,
        "tree_method": "hist",
        "max_bin": BINS,
        "seed": seed,
        "nthread": nthread,
        "verbosity": 0,
    }
    data = xgb.QuantileDMatrix(matrix, label=target.astype(np.float32), max_bin=BINS, nthread=nthread)
    booster = xgb.train(params, data, num_boost_round=1)
    reached = booster.predict(xgb.DMatrix(matrix, nthread=nthread), pred_leaf=True).astype(np.int64)
    trees = bytes(booster.save_raw("ubj"))
    forest = read_forest(trees, name="forest")
    rng = np.random.default_rng(seed)
    ends = np.append(forest.root[1:], len(forest.left))
    sampled = [
        _sampled(reached[:, tree], np.flatnonzero(forest.left[begin:end] < 0), target, rng)
        for tree, (begin, end) in enumerate(zip(forest.root.tolist(), ends.tolist(), strict=True))
    ]
    return FittedForest(
        trees=trees, forest=QuantileForest(forest=forest, values=np.concatenate(sampled).astype(np.float32))
    )


def features_share(columns: int) -> float:
    """Return the share of the columns from which each node chooses.

    >>> [round(features_share(columns), 3) for columns in (3, 4, 8, 12, 60)]
    [1.0, 1.0, 0.5, 0.333, 0.333]
    """
    return max(FEATURES_SHARE, min(1.0, LEAST_FEATURES / max(columns, 1)))


def _sampled(
    reached: "np.typing.NDArray[np.int64]",
    leaves: "np.typing.NDArray[np.int64]",
    target: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Sample training values with replacement from each leaf (leaves, values); `reached` (n,) is each row's leaf.

    A leaf that only rows outside the tree's own sample could reach holds values of all rows.
    """
    order = np.argsort(reached, kind="stable")
    ranked = reached[order]
    first, last = np.searchsorted(ranked, leaves, side="left"), np.searchsorted(ranked, leaves, side="right")
    empty = first == last
    first, last = np.where(empty, 0, first), np.where(empty, len(reached), last)
    places = first[:, None] + rng.random((len(leaves), VALUES_PER_LEAF)) * (last - first)[:, None]
    drawn: FloatArray = target[order[places.astype(np.int64)]]
    return drawn

"""XGBoost on log targets: quantile boosters with early stopping, and a forest whose leaves sample training values.

Reference: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System" (2016), sections 2 and 3.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import xgboost as xgb
from pydantic import ConfigDict, Field, with_config

from modelserve.bundle.boosters import VALUES_PER_LEAF, QuantileForest
from modelserve.bundle.trees.compiled import tree_outputs
from modelserve.bundle.trees.forest import read_forest
from pipelines.models.metrics import FloatArray

__all__ = ["Boosting", "fit_forest"]

Matrix = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""How values are read from a file of recipes."""

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@with_config(STRICT)
@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """Parameters of XGBoost; `patience` is the number of rounds without improvement before early stopping.

    `rounds` is the number of boosting rounds, or with early stopping their maximum. The bounds, which exclude what no
    training could use, are those of a file of recipes.
    """

    rounds: Annotated[int, Field(ge=1, le=5000)] = 80
    patience: Annotated[int, Field(ge=1, le=5000)] = 80
    learning_rate: Share = 0.08
    num_parallel_tree: Annotated[int, Field(ge=1, le=64)] = 4
    max_depth: Annotated[int, Field(ge=1, le=16)] = 6
    min_child_weight: Annotated[float, Field(ge=0.0, le=1e6)] = 200.0
    subsample: Share = 0.7
    colsample_bytree: Share = 0.3
    reg_lambda: Annotated[float, Field(ge=0.0, le=1e6)] = 5.0
    max_bin: Annotated[int, Field(ge=2, le=4096)] = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names and types (`q` quantity, `c` category) of a matrix's columns, as the feature contract gives them."""

    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows for fitting or early stopping: matrix (n, k), target in log units (n,), and weights (n,), None for equal.

    `margin` (n, outputs) is added to the outputs of the trees before the loss is computed; None adds nothing.
    """

    matrix: Matrix
    target: FloatArray
    weights: FloatArray | None = None
    margin: FloatArray | None = None


def fit(
    rows: Rows,
    columns: Columns,
    *,
    quantiles: tuple[float, ...],
    stop: Rows | None = None,
    boosting: Boosting,
    seed: int,
    nthread: int,
) -> xgb.Booster:
    """Fit one booster with one output per quantile level; with `stop`, keep the rounds up to the lowest loss on it.

    Equal rows, seed and number of threads give an equal booster.
    """
    train = _matrix(rows, columns, boosting, nthread)
    watched = [] if stop is None else [(_matrix(stop, columns, boosting, nthread, train), "stop")]
    params = {
        "tree_method": "hist",
        "objective": "reg:quantileerror",
        "quantile_alpha": list(quantiles),
        "seed": seed,
        "nthread": nthread,
        "verbosity": 0,
        **{name: value for name, value in asdict(boosting).items() if name not in {"rounds", "patience"}},
        # With a margin, training ignores the base score, but prediction would add it: set it to 0.
        **({} if rows.margin is None else {"base_score": 0.0}),
    }
    booster = xgb.train(
        params,
        train,
        num_boost_round=boosting.rounds,
        evals=watched,
        early_stopping_rounds=boosting.patience if watched else None,
        verbose_eval=False,
    )
    kept = booster[: booster.best_iteration + 1] if watched else booster
    kept.feature_names = list(columns.names)
    return kept


def constant(columns: Columns, *, quantiles: tuple[float, ...]) -> xgb.Booster:
    """Return a booster that answers 0 for every row: the form of a model for which no trees are grown."""
    zeros = np.zeros((1, len(quantiles)))
    row = Rows(matrix=np.zeros((1, len(columns.names)), dtype=np.float32), target=zeros[:, 0], margin=zeros)
    return fit(row, columns, quantiles=quantiles, boosting=Boosting(rounds=1, num_parallel_tree=1), seed=0, nthread=1)


def predict(booster: xgb.Booster, matrix: Matrix) -> FloatArray:
    """Return the outputs of the trees (n, outputs); no margin is added, and quantiles may cross."""
    if len(matrix) == 0:
        return np.zeros((0, 1))
    return np.asarray(booster.inplace_predict(matrix), dtype=np.float64).reshape(len(matrix), -1)


def walked(booster: xgb.Booster) -> Callable[[Matrix], FloatArray]:
    """Return `predict` of a booster by the compiled tree walk of the service: the same bits, and faster."""
    return partial(tree_outputs, read_forest(bytes(booster.save_raw("ubj")), name="booster"))


def rounds_of(booster: xgb.Booster) -> int:
    """Return the number of boosting rounds."""
    return int(booster.num_boosted_rounds())


def _matrix(
    rows: Rows, columns: Columns, boosting: Boosting, nthread: int, reference: xgb.QuantileDMatrix | None = None
) -> xgb.QuantileDMatrix:
    # No feature names here: XGBoost would copy them in every round. `fit` sets them on the finished booster.
    # XGBoost holds float32. It converts other types with all threads, which takes milliseconds on a busy machine.
    label, weight, margin = (
        None if each is None else each.astype(np.float32) for each in (rows.target, rows.weights, rows.margin)
    )
    return xgb.QuantileDMatrix(
        rows.matrix,
        label=label,
        weight=weight,
        base_margin=margin,
        feature_types=list(columns.types),
        enable_categorical=True,
        max_bin=boosting.max_bin,
        nthread=nthread,
        ref=reference,
    )


TREES: Final = 60
ROWS_PER_TREE: Final = 15_000
LEAST_LEAF: Final = 20
FEATURES_SHARE: Final = 1 / 3
"""Share of the columns from which each node chooses, if that is more than `LEAST_FEATURES`."""
LEAST_FEATURES: Final = 4
"""Minimum number of columns from which each node chooses, or all columns if there are fewer.

A node becomes a leaf if none of its columns has a split. With 3 or 4 columns, a third is a single column: on made-up
rows the trees then had 50 to 75 % of the leaves, and the pinball loss was 15 to 28 % higher.
"""
BINS: Final = 64
SMALL_SHARE: Final = 0.8
"""Share of the rows that each tree is grown on if there are at most `ROWS_PER_TREE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedForest:
    """A fitted quantile regression forest; `trees` and `values` are the two files of a bundle that hold it."""

    trees: bytes
    forest: QuantileForest

    @property
    def values(self) -> bytes:
        """Return the values of the leaves."""
        return self.forest.stored


def fit_forest(matrix: Matrix, target: FloatArray, *, seed: int, nthread: int) -> FittedForest:
    """Fit a forest to rows (n, k) and their log run times minus the reference p50 (n,).

    XGBoost grows the trees on squared error. Each leaf samples `VALUES_PER_LEAF` of the training values that reach it,
    with replacement; `modelserve.bundle.boosters` computes quantiles from them.
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
    """Return the share of the columns from which each node chooses."""
    return max(FEATURES_SHARE, min(1.0, LEAST_FEATURES / max(columns, 1)))


def _sampled(reached: IntArray, leaves: IntArray, target: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Sample training values with replacement from each leaf (leaves, values); `reached` (n,) is each row's leaf.

    A leaf that no row of the tree's sample reaches holds values of all rows.
    """
    order = np.argsort(reached, kind="stable")
    ranked = reached[order]
    first, last = np.searchsorted(ranked, leaves, side="left"), np.searchsorted(ranked, leaves, side="right")
    empty = first == last
    first, last = np.where(empty, 0, first), np.where(empty, len(reached), last)
    places = first[:, None] + rng.random((len(leaves), VALUES_PER_LEAF)) * (last - first)[:, None]
    drawn: FloatArray = target[order[places.astype(np.int64)]]
    return drawn

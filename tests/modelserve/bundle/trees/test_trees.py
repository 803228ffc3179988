from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.trees import compiled as trees_module
from modelserve.bundle.trees.compiled import GROUP, LANES, tree_outputs
from modelserve.bundle.trees.forest import Forest, read_forest
from modelserve.errors import BundleError

FEATURES = 6
CATEGORICAL = 2


def trained(objective: str = "reg:quantileerror", rounds: int = 12, seed: int = 0, **params: object) -> xgb.Booster:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(600, FEATURES)).astype(np.float32)
    rows[:, CATEGORICAL] = rng.integers(0, 40, 600)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    aim = np.nan_to_num(rows[:, 0]) + np.isin(rows[:, CATEGORICAL], [1, 33, 7]) * 3.0
    levels = {"quantile_alpha": [0.5, 0.9]} if objective == "reg:quantileerror" else {}
    types = ["c" if i == CATEGORICAL else "q" for i in range(FEATURES)]
    data = xgb.DMatrix(rows, aim, feature_types=types, enable_categorical=True, nthread=1)
    booster = xgb.train(
        {"max_depth": 5, "nthread": 1, "seed": seed, "objective": objective, **levels, **params}, data, rounds
    )
    booster.set_param({"nthread": 1})
    return booster


def forest_of(booster: xgb.Booster) -> Forest:
    return read_forest(bytes(booster.save_raw("ubj")), name="m")


def rows_for(count: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.normal(scale=2.0, size=(count, FEATURES)).astype(np.float32)
    rows[:, CATEGORICAL] = rng.choice([-1.0, 0.0, 1.0, 2.7, 33.0, 39.0, 40.0, 64.0, 1e6, 2.0**24, 1e30], count)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    return rows


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"max_cat_to_onehot": 1},
        {"max_cat_to_onehot": 64},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"objective": "reg:absoluteerror"},
        {"objective": "reg:squarederror", "base_score": 0.25},
        {"max_depth": 9, "rounds": 60},
        {"max_depth": 0, "grow_policy": "lossguide", "max_leaves": 1},
        {"rounds": 0},
    ],
    ids=["usual", "partition", "one-hot", "parallel", "absolute", "squared", "deep", "leaves", "no-trees"],
)
def test_every_answer_equals_the_librarys_to_the_bit(params: dict[str, Any]) -> None:
    booster = trained(**params)
    forest = forest_of(booster)
    rows = rows_for(500)
    numeric = (forest.left >= 0) & (forest.words_at < 0)
    for at, feature in zip(forest.threshold[numeric][:200], forest.feature[numeric][:200], strict=True):
        rows = np.vstack([rows, rows_for(3)])  # at a split, just below and just above it
        rows[-3:, feature] = at, np.nextafter(at, np.float32(-np.inf)), np.nextafter(at, np.float32(np.inf))

    answers = np.vstack([tree_outputs(forest, row[None]) for row in rows])

    assert answers.dtype == np.float64
    np.testing.assert_array_equal(answers, raw_outputs(booster, rows))
    np.testing.assert_array_equal(answers, tree_outputs(forest, rows))


WIDE = 70
"""Number of columns, more than the bits of a path."""


@cache
def wide() -> xgb.Booster:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(400, WIDE)).astype(np.float32)
    rows[:, 1::7] = rng.integers(0, 40, rows[:, 1::7].shape)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    types = ["c" if i % 7 == 1 else "q" for i in range(WIDE)]
    data = xgb.DMatrix(rows, rng.normal(size=400), feature_types=types, enable_categorical=True, nthread=1)
    return xgb.train({"max_depth": 6, "nthread": 1, "colsample_bynode": 0.2, "eta": 0.05}, data, 2 * GROUP + 1)


@pytest.mark.parametrize("changed", [0, 1, 9, WIDE])
@pytest.mark.parametrize("trees", [1, LANES - 1, LANES, LANES + 1, GROUP, 2 * GROUP + 1])
def test_rows_that_differ_in_few_columns_are_answered_as_each_alone(changed: int, trees: int) -> None:
    booster, rng = wide()[:trees], np.random.default_rng(trees + changed)
    rows = rng.integers(-1, 50, (12, WIDE)).astype(np.float32)
    rows[:, ::2] = rng.normal(scale=2.0, size=(12, WIDE // 2))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows = rows.repeat(11, axis=0)
    columns = rng.choice(WIDE, changed, replace=False)
    rows[:, columns] = rng.integers(-1, 50, (len(rows), changed))
    rows[-2:, :2] = [[np.inf, 0.0], [-np.inf, -0.0]]

    np.testing.assert_array_equal(tree_outputs(forest_of(booster), rows), raw_outputs(booster, rows))


@pytest.mark.parametrize("shape", [(3, FEATURES + 1), (3, FEATURES - 1), (FEATURES,)])
def test_a_matrix_of_another_width_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        tree_outputs(forest_of(trained()), np.zeros(shape, np.float32))


def train_dart() -> xgb.Booster:
    return trained(booster="dart", rate_drop=0.5)


def train_linear() -> xgb.Booster:
    data = xgb.DMatrix(np.zeros((9, 2), np.float32), np.zeros(9), nthread=1)
    return xgb.train({"booster": "gblinear", "objective": "reg:squarederror", "nthread": 1}, data, 1)


def train_vector() -> xgb.Booster:
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    data = xgb.DMatrix(rows, rows[:, :2], nthread=1)
    return xgb.train({"multi_strategy": "multi_output_tree", "tree_method": "hist", "nthread": 1}, data, 2)


def train_logistic() -> xgb.Booster:
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    return xgb.train({"objective": "binary:logistic", "nthread": 1}, xgb.DMatrix(rows, rows[:, 0] > 0, nthread=1), 2)


@pytest.mark.parametrize("train", [train_dart, train_linear, train_vector, train_logistic])
def test_models_that_do_not_sum_trees_are_refused(train: Callable[[], xgb.Booster]) -> None:
    with pytest.raises(BundleError, match="expected"):
        read_forest(bytes(train().save_raw("ubj")), name="m")


def test_where_no_compiled_code_can_be_kept_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = trees_module.numba.njit

    def nowhere(*args: object, cache: bool = False, **options: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*args, **options)

    monkeypatch.setattr(trees_module.numba, "njit", nowhere)

    assert trees_module.jitted("int64(int64)")(lambda number: number + 1)(1) == 2

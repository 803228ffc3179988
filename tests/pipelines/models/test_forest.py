"""Fitting the quantile forest: on rows whose quantiles are known, and what its leaves hold."""

from dataclasses import replace

import numpy as np
import pytest
import xgboost as xgb

from modelserve.bundle.quantile_forest import VALUES_PER_LEAF, read_quantile_forest
from pipelines.models.forest import SMALL_SHARE, TREES, FittedForest, features_share, fit_forest
from tests.pipelines.models.test_boosting import known_rows


def fitted(n: int = 300, seed: int = 0) -> FittedForest:
    rows = known_rows(n, 0)
    return fit_forest(rows.matrix, rows.target, seed=seed, nthread=1)


@pytest.mark.parametrize("columns", [[0, 1, 1, 2], [0, 1, 2] * 4], ids=["four columns", "twelve"])
def test_the_quantiles_of_a_known_population_are_found(columns: list[int]) -> None:
    # With a third of four columns, a node would have one to split on, and be a leaf if that were `kind` again.
    rows, judged = (
        replace(each, matrix=each.matrix[:, columns]) for each in (known_rows(3000, 0), known_rows(1000, 2))
    )

    found = fit_forest(rows.matrix, rows.target, seed=0, nthread=1).forest.rows(judged.matrix)

    x, kind = judged.matrix[:, 0], judged.matrix[:, -1]
    assert np.abs(found[:, 0] - (x + kind)).mean() < 0.2
    assert np.abs(found[:, 1] - (x + kind + 1.2816 * (0.5 + kind))).mean() < 0.3
    assert (judged.target <= found[:, 1]).mean() == pytest.approx(0.9, abs=0.03)
    assert (found[:, 0] <= found[:, 1]).all()


def test_wide_tables_are_sampled_as_ever_and_narrow_ones_by_four_columns() -> None:
    assert [features_share(columns) for columns in range(12, 200)] == [1 / 3] * 188
    # XGBoost multiplies in single precision and rounds down.
    assert [int(np.float32(features_share(n)) * np.float32(n)) for n in range(1, 13)] == [1, 2, 3] + [4] * 9


def test_the_same_seed_gives_the_same_files_and_another_other_files() -> None:
    first, again, other = fitted(seed=4), fitted(seed=4), fitted(seed=5)

    assert (first.trees, first.values) == (again.trees, again.values)
    assert first.trees != other.trees
    assert first.values != other.values


def test_the_files_read_back_are_the_forest() -> None:
    made, asked = fitted(), known_rows(50, 1).matrix

    read = read_quantile_forest(made.trees, made.values, features=3, name="models/forest")

    assert read.values.tobytes() == made.forest.values.tobytes()
    assert read.rows(asked).tobytes() == made.forest.rows(asked).tobytes()
    assert len(made.values) == made.forest.values.size * 4


def leaves_of(made: FittedForest) -> list[list[int]]:
    """Return the leaves of each tree, by their number in the tree."""
    forest = made.forest.forest
    ends = [*forest.root[1:].tolist(), len(forest.left)]
    return [np.flatnonzero(forest.left[a:b] < 0).tolist() for a, b in zip(forest.root.tolist(), ends, strict=True)]


def test_a_leaf_holds_values_of_the_training_rows_that_reach_it() -> None:
    rows, made = known_rows(400, 0), fitted(400)

    booster = xgb.Booster(model_file=bytearray(made.trees))
    reached = booster.predict(xgb.DMatrix(rows.matrix), pred_leaf=True).astype(int)

    target, place, empty = rows.target.astype(np.float32), 0, 0
    assert reached.shape == (400, TREES)
    for tree, leaves in enumerate(leaves_of(made)):
        for leaf in leaves:
            inside = target[reached[:, tree] == leaf]
            empty += len(inside) == 0
            assert np.isin(made.forest.values[place], inside if len(inside) else target).all()
            place += 1
    assert made.forest.values.shape == (place, VALUES_PER_LEAF)
    assert made.forest.values.dtype == np.float32
    assert empty == 0


def test_every_training_value_of_a_leaf_is_as_likely_as_any_other() -> None:
    # Rows that cannot be told apart: each tree is one leaf, and its values are draws from all rows.
    target = np.arange(10.0)

    made = fit_forest(np.zeros((10, 1), dtype=np.float32), target, seed=0, nthread=1)

    assert made.forest.values.shape == (TREES, VALUES_PER_LEAF)
    counts = np.bincount(made.forest.values.astype(int).ravel(), minlength=10)
    assert counts.sum() == TREES * VALUES_PER_LEAF
    assert counts.min() > 20
    assert counts.max() < 80
    other = fit_forest(np.zeros((10, 1), dtype=np.float32), target, seed=1, nthread=1)
    assert other.forest.values.tolist() != made.forest.values.tolist()


@pytest.mark.parametrize("n", [1, 2, 15])
def test_few_rows_and_missing_values_are_taken(n: int) -> None:
    rows = known_rows(n, 0)
    rows.matrix[::3, 0] = np.nan

    found = fit_forest(rows.matrix, rows.target, seed=0, nthread=1).forest.rows(rows.matrix)

    assert (rows.target.min() <= found + 1e-6).all()
    assert (found <= rows.target.max() + 1e-6).all()


def test_trees_are_grown_on_different_rows() -> None:
    # With one column, equal trees would come from equal rows.
    rows = known_rows(200, 3)
    made = fit_forest(rows.matrix[:, :1], rows.target, seed=0, nthread=1)

    forest = made.forest.forest
    first = {float(forest.threshold[root]) for root in forest.root}

    assert SMALL_SHARE < 1.0
    assert len(first) > 5

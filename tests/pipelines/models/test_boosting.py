"""Boosters and forests on rows whose quantiles are known, and what a forest's leaves hold."""

from dataclasses import replace

import numpy as np
import pytest
import xgboost as xgb

from modelserve.bundle.boosters import VALUES_PER_LEAF, read_quantile_forest
from pipelines.models import boosting
from pipelines.models.boosting import Boosting, Columns, FittedForest, Rows, features_share, fit_forest

COLUMNS = Columns(names=("x", "noise", "kind"), types=("q", "q", "c"))
QUICK = Boosting(rounds=120, num_parallel_tree=1, patience=10, learning_rate=0.15, max_depth=4, min_child_weight=20.0)


def known_rows(n: int, seed: int) -> Rows:
    """Return rows with target x + kind + N(0, 0.5 + kind): the quantiles depend on x and on the category."""
    rng = np.random.default_rng(seed)
    x, noise, kind = rng.uniform(0, 4, n), rng.normal(size=n), rng.integers(0, 2, n)
    target = x + kind + rng.normal(size=n) * (0.5 + kind)
    return Rows(matrix=np.column_stack([x, noise, kind]).astype(np.float32), target=target)


def fit(rows: Rows, *, seed: int = 7, stop: Rows | None = None) -> xgb.Booster:
    return boosting.fit(rows, COLUMNS, quantiles=(0.5, 0.9), boosting=QUICK, seed=seed, nthread=1, stop=stop)


def test_quantiles_of_a_known_population_are_found() -> None:
    booster = fit(known_rows(8000, 0), stop=known_rows(2000, 1))
    judged = known_rows(4000, 2)

    answer = boosting.predict(booster, judged.matrix)

    x, kind = judged.matrix[:, 0], judged.matrix[:, 2]
    assert answer[:, 0] == pytest.approx(x + kind, abs=1.2)
    assert np.abs(answer[:, 0] - (x + kind)).mean() < 0.2
    assert np.abs(answer[:, 1] - (x + kind + 1.2816 * (0.5 + kind))).mean() < 0.25
    assert (judged.target <= answer[:, 1]).mean() == pytest.approx(0.9, abs=0.03)


def test_answers_are_added_to_the_margin_they_were_learnt_against() -> None:
    plain = known_rows(4000, 0)
    margin = np.column_stack([plain.matrix[:, 0] + 50.0, plain.matrix[:, 0] + 70.0]).astype(np.float64)
    moved = replace(plain, target=plain.target + 60.0, margin=margin)

    raw = boosting.predict(fit(moved), plain.matrix)

    assert np.abs(raw[:, 0] + margin[:, 0] - 60.0 - (plain.matrix[:, 0] + plain.matrix[:, 2])).mean() < 0.3
    assert (moved.target <= raw[:, 1] + margin[:, 1]).mean() == pytest.approx(0.9, abs=0.04)


def test_the_same_seed_gives_the_same_bytes_and_another_other_bytes() -> None:
    rows = known_rows(1000, 0)

    assert fit(rows, seed=1).save_raw("ubj") == fit(rows, seed=1).save_raw("ubj")
    assert fit(rows, seed=1).save_raw("ubj") != fit(rows, seed=2).save_raw("ubj")


def test_stopping_keeps_the_best_rounds_only() -> None:
    stopped = fit(known_rows(400, 0), stop=known_rows(400, 1))

    assert boosting.rounds_of(stopped) < boosting.rounds_of(fit(known_rows(400, 0))) == QUICK.rounds


def test_weights_pull_the_answer_to_the_rows_they_favour() -> None:
    rows = known_rows(4000, 0)
    heavy_tail = replace(rows, weights=np.where(rows.target > 4, 10.0, 1.0))

    plain, pulled = (boosting.predict(fit(r), rows.matrix)[:, 0].mean() for r in (rows, heavy_tail))

    assert pulled > plain + 0.3


def test_no_rows_have_no_answers_and_a_constant_booster_answers_zero() -> None:
    booster = boosting.constant(COLUMNS, quantiles=(0.5, 0.9))
    matrix = np.array([[1.0, np.nan, 0.0], [-3e38, 2.0, 5.0], [np.nan] * 3], dtype=np.float32)

    assert len(boosting.predict(booster, matrix[:0])) == 0
    assert boosting.predict(booster, matrix).tolist() == [[0.0, 0.0]] * 3
    assert booster.feature_names == list(COLUMNS.names)
    assert boosting.constant(COLUMNS, quantiles=(0.5, 0.9)).save_raw("ubj") == booster.save_raw("ubj")


# Forests.


def forest_of(rows: Rows, seed: int = 0) -> FittedForest:
    return fit_forest(rows.matrix, rows.target, seed=seed, nthread=1)


@pytest.mark.parametrize("columns", [[0, 1, 1, 2], [0, 1, 2] * 4], ids=["four columns", "twelve"])
def test_a_forest_finds_the_quantiles_of_a_known_population(columns: list[int]) -> None:
    # With a third of four columns, a node would have one to split on, and be a leaf if that were `kind` again.
    rows, judged = (
        replace(each, matrix=each.matrix[:, columns]) for each in (known_rows(3000, 0), known_rows(1000, 2))
    )

    found = forest_of(rows).forest.rows(judged.matrix)

    x, kind = judged.matrix[:, 0], judged.matrix[:, -1]
    assert np.abs(found[:, 0] - (x + kind)).mean() < 0.2
    assert np.abs(found[:, 1] - (x + kind + 1.2816 * (0.5 + kind))).mean() < 0.3
    assert (judged.target <= found[:, 1]).mean() == pytest.approx(0.9, abs=0.03)
    assert (found[:, 0] <= found[:, 1]).all()


def test_nodes_choose_from_a_third_of_the_columns_and_from_four_at_least() -> None:
    assert [features_share(columns) for columns in range(12, 200)] == [1 / 3] * 188
    # XGBoost multiplies in single precision and rounds down.
    assert [int(np.float32(features_share(n)) * np.float32(n)) for n in range(1, 13)] == [1, 2, 3] + [4] * 9


def test_the_files_of_a_forest_depend_on_the_seed_and_are_read_back() -> None:
    rows, matrix = known_rows(300, 0), known_rows(50, 1).matrix
    first, again, other = forest_of(rows, 4), forest_of(rows, 4), forest_of(rows, 5)

    read = read_quantile_forest(first.trees, first.values, features=3, name="models/forest")

    assert (first.trees, first.values) == (again.trees, again.values)
    assert first.trees != other.trees
    assert first.values != other.values
    assert read.rows(matrix).tobytes() == first.forest.rows(matrix).tobytes()
    assert len(first.values) == first.forest.values.size * 4


def test_a_leaf_holds_values_of_the_training_rows_that_reach_it() -> None:
    rows = known_rows(400, 0)
    made = forest_of(rows)
    forest = made.forest.forest

    booster = xgb.Booster(model_file=bytearray(made.trees))
    reached = booster.predict(xgb.DMatrix(rows.matrix), pred_leaf=True).astype(int)

    target, place = rows.target.astype(np.float32), 0
    ends = [*forest.root[1:].tolist(), len(forest.left)]
    for tree, (begin, end) in enumerate(zip(forest.root.tolist(), ends, strict=True)):
        for leaf in np.flatnonzero(forest.left[begin:end] < 0):
            assert np.isin(made.forest.values[place], target[reached[:, tree] == leaf]).all()
            place += 1
    assert made.forest.values.shape == (place, VALUES_PER_LEAF)
    assert len({float(forest.threshold[root]) for root in forest.root}) > 5, "trees are grown on different rows"


@pytest.mark.parametrize("n", [1, 2, 15])
def test_a_forest_takes_few_rows_and_missing_values(n: int) -> None:
    rows = known_rows(n, 0)
    rows.matrix[::3, 0] = np.nan

    found = forest_of(rows).forest.rows(rows.matrix)

    assert (rows.target.min() <= found + 1e-6).all()
    assert (found <= rows.target.max() + 1e-6).all()

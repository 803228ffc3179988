"""Boosters on rows whose quantiles are known."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.models import boosting
from pipelines.models.boosting import Boosting, Columns, Rows

COLUMNS = Columns(names=("x", "noise", "kind"), types=("q", "q", "c"))
QUICK = Boosting(rounds=120, patience=10, learning_rate=0.15, max_depth=4, min_child_weight=20.0)


def known_rows(n: int, seed: int) -> Rows:
    """Return rows with target x + kind + N(0, 0.5 + kind): the quantiles depend on x and on the category."""
    rng = np.random.default_rng(seed)
    x, noise, kind = rng.uniform(0, 4, n), rng.normal(size=n), rng.integers(0, 2, n)
    target = x + kind + rng.normal(size=n) * (0.5 + kind)
    return Rows(matrix=np.column_stack([x, noise, kind]).astype(np.float32), target=target)


def fit(rows: Rows, **more: object) -> object:
    return boosting.fit(rows, COLUMNS, quantiles=(0.5, 0.9), boosting=QUICK, seed=7, nthread=1, **more)


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

    def raw(seed: int) -> bytes:
        booster = boosting.fit(rows, COLUMNS, quantiles=(0.5, 0.9), boosting=QUICK, seed=seed, nthread=1)
        return bytes(booster.save_raw("ubj"))

    assert raw(1) == raw(1)
    assert raw(1) != raw(2)


def test_stopping_keeps_the_best_rounds_only() -> None:
    stopped = fit(known_rows(400, 0), stop=known_rows(400, 1))
    unstopped = fit(known_rows(400, 0))

    assert boosting.rounds_of(stopped) < boosting.rounds_of(unstopped) == QUICK.rounds


def test_weights_pull_the_answer_to_the_rows_they_favour() -> None:
    rows = known_rows(4000, 0)
    heavy_tail = Rows(matrix=rows.matrix, target=rows.target, weights=np.where(rows.target > 4, 10.0, 1.0))

    plain, pulled = (boosting.predict(fit(r), rows.matrix)[:, 0].mean() for r in (rows, heavy_tail))

    assert pulled > plain + 0.3


def test_the_point_objective_has_one_output() -> None:
    booster = boosting.fit(known_rows(500, 0), COLUMNS, objective="absolute", boosting=QUICK, seed=0, nthread=1)

    assert boosting.predict(booster, known_rows(10, 1).matrix).shape == (10, 1)


def test_no_rows_no_answers() -> None:
    booster = fit(known_rows(100, 0))

    assert len(boosting.predict(booster, np.zeros((0, 3), dtype=np.float32))) == 0


def test_a_booster_without_trees_to_speak_of_answers_zero() -> None:
    booster = boosting.constant(COLUMNS, quantiles=(0.5, 0.9))
    matrix = np.array([[1.0, np.nan, 0.0], [-3e38, 2.0, 5.0], [np.nan] * 3], dtype=np.float32)

    assert boosting.predict(booster, matrix).tolist() == [[0.0, 0.0]] * 3
    assert booster.feature_names == list(COLUMNS.names)
    assert boosting.constant(COLUMNS, quantiles=(0.5, 0.9)).save_raw("ubj") == booster.save_raw("ubj")

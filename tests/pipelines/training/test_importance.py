"""Permutation importance and its sign, on a population where we know what matters."""

import numpy as np
import pytest

from pipelines.training import boosting, importance, metrics
from pipelines.training.boosting import Boosting, Columns, Matrix, Rows
from pipelines.training.metrics import FloatArray

COLUMNS = Columns(names=("req_gpus", "req_cpu_cores", "req_mem_gib", "role"), types=("q", "q", "q", "c"))


def population(n: int, seed: int) -> Rows:
    """Return rows where GPUs shorten the run much, cores lengthen it a little, memory does nothing, role matters."""
    rng = np.random.default_rng(seed)
    gpus, cores, mem, role = rng.uniform(0, 4, n), rng.uniform(0, 4, n), rng.uniform(0, 4, n), rng.integers(0, 2, n)
    target = 8 - 2.0 * gpus + 0.5 * cores + role + rng.normal(0, 0.3, n)
    mem[::5] = np.nan
    return Rows(matrix=np.column_stack([gpus, cores, mem, role]).astype(np.float32), target=target)


def measured(seed: int = 0) -> dict[str, importance.Importance]:
    rows, held = population(3000, 0), population(800, 1)
    booster = boosting.fit(
        rows, COLUMNS, quantiles=(0.5, 0.9), boosting=Boosting(rounds=60, colsample_bytree=1.0), seed=0, nthread=1
    )

    def loss(matrix: Matrix, target: FloatArray) -> float:
        return metrics.pinball(target, boosting.predict(booster, matrix)[:, 0], 0.5)

    listed = importance.permuted(held.matrix, held.target, COLUMNS, [booster], loss=loss, seed=seed)
    assert [i["mean"] for i in listed] == sorted((i["mean"] for i in listed), reverse=True)
    return {str(i["feature"]): i for i in listed}


def test_what_matters_more_has_the_larger_importance() -> None:
    found = measured()

    means = {name: found[name]["mean"] for name in COLUMNS.names}
    assert means["req_gpus"] > means["req_cpu_cores"] > means["req_mem_gib"]
    assert abs(means["req_mem_gib"]) < 0.01
    assert means["role"] > 0.05


def test_the_sign_is_the_direction_of_the_effect_and_categories_have_none() -> None:
    found = measured()

    assert found["req_gpus"]["sign"] < -0.9
    assert found["req_cpu_cores"]["sign"] > 0.9
    assert found["role"]["sign"] is None


def test_the_same_seed_shuffles_the_same_way() -> None:
    assert measured(3) == measured(3)
    assert measured(3)["req_gpus"]["mean"] != measured(4)["req_gpus"]["mean"]


def test_important_resources_are_steady_and_not_negligible() -> None:
    assert importance.important_resources(list(measured().values())) == ("cpu_cores", "gpus")


def test_a_derived_feature_counts_for_every_resource_it_derives_from() -> None:
    rows: list[importance.Importance] = [
        {"feature": name, "mean": mean, "std": 0.03, "repeats": 5, "sign": None}
        for name, mean in [("cpu_cores_per_gpu", 0.2), ("req_gpus", 0.1), ("user_run_s_p50_20", 0.5)]
    ]

    found = importance.resource_importances(rows)

    assert found["cpu_cores"] == pytest.approx((0.2, 0.03))
    assert found["gpus"] == pytest.approx((0.3, 0.03 * np.sqrt(2)))
    assert found["mem_gib"] == (0.0, 0.0)


def test_a_column_no_tree_splits_on_has_no_importance() -> None:
    rows = population(200, 0)
    booster = boosting.fit(rows, COLUMNS, quantiles=(0.5,), boosting=Boosting(rounds=1, max_depth=1), seed=0, nthread=1)

    def loss(matrix: Matrix, target: FloatArray) -> float:
        return metrics.pinball(target, boosting.predict(booster, matrix)[:, 0], 0.5)

    found = importance.permuted(rows.matrix, rows.target, COLUMNS, [booster], loss=loss, seed=0)

    assert sum(i["std"] == 0.0 and i["mean"] == 0.0 for i in found) == 3

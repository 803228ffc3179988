"""Permutation importance and its sign, on a population where we know what matters."""

import numpy as np
import polars as pl
import pytest
import xgboost as xgb

from features.build import build
from features.contract import FeatureContract
from features.history import History
from pipelines.models import boosting, importance, metrics
from pipelines.models.boosting import Boosting, Columns, Matrix, Rows
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import IntArray
from tests.pipelines.models.conftest import make_jobs

COLUMNS = Columns(names=("req_gpus", "req_cpu_cores", "req_mem_gib", "role"), types=("q", "q", "q", "c"))


def population(n: int, seed: int) -> Rows:
    """Return rows where GPUs shorten the run much, cores lengthen it a little, memory does nothing, role matters."""
    rng = np.random.default_rng(seed)
    gpus, cores, mem, role = rng.uniform(0, 4, n), rng.uniform(0, 4, n), rng.uniform(0, 4, n), rng.integers(0, 2, n)
    target = 8 - 2.0 * gpus + 0.5 * cores + role + rng.normal(0, 0.3, n)
    mem[::5] = np.nan
    return Rows(matrix=np.column_stack([gpus, cores, mem, role]).astype(np.float32), target=target)


def scored(booster: xgb.Booster, target: FloatArray) -> importance.Score:
    """Return the score of a booster's median on copies of rows with this target."""
    predict = boosting.walked(booster)

    def score(matrix: Matrix, of: IntArray) -> importance.Scored:
        p50 = predict(matrix)[:, 0]
        return metrics.pinball_rows(target[of], p50, 0.5), p50

    return score


def measured(seed: int = 0) -> dict[str, importance.Importance]:
    rows, held = population(3000, 0), population(800, 1)
    booster = boosting.fit(
        rows,
        COLUMNS,
        quantiles=(0.5, 0.9),
        boosting=Boosting(
            rounds=60, num_parallel_tree=1, colsample_bytree=1.0, learning_rate=0.1, min_child_weight=20.0
        ),
        seed=0,
        nthread=1,
    )

    gains = importance.gain_shares([booster])
    listed = importance.permuted(
        held.matrix, COLUMNS, scored(booster, held.target), used=gains.keys(), gains=gains, seed=seed
    )
    assert [i["mean"] for i in listed] == sorted((i["mean"] for i in listed), reverse=True)
    return {str(i["feature"]): i for i in listed}


def test_what_matters_more_has_the_larger_importance() -> None:
    found = measured()

    assert found == measured()
    means = {name: found[name]["mean"] for name in COLUMNS.names}
    assert means["req_gpus"] > means["req_cpu_cores"] > means["req_mem_gib"]
    assert abs(means["req_mem_gib"]) < 0.01
    assert means["role"] > 0.05
    gains = [found[name]["xgboost_gain"] for name in COLUMNS.names]
    assert np.argmax(gains) == 0
    assert sum(gains) == pytest.approx(1.0)


def test_only_columns_in_use_are_shuffled_and_unknown_gains_are_null() -> None:
    held = population(50, 1)

    def score(matrix: Matrix, of: IntArray) -> importance.Scored:
        return np.abs(matrix[:, :2] - held.matrix[of, :2]).sum(axis=1), np.zeros(len(matrix))

    rows = importance.permuted(held.matrix, COLUMNS, score, used={"req_gpus"}, gains=None, seed=0)

    assert [row["feature"] for row in rows if row["mean"]] == ["req_gpus"]
    assert {(row["sign"], row["xgboost_gain"]) for row in rows} == {(None, None)}


def test_the_sign_is_the_direction_of_the_effect_and_categories_have_none() -> None:
    found = measured()

    assert found["req_gpus"]["sign"] < -0.9
    assert found["req_cpu_cores"]["sign"] > 0.9
    assert found["role"]["sign"] is None


def requests_measured(
    names: list[str], jobs: pl.DataFrame | None = None, target: FloatArray | None = None
) -> dict[str, importance.Spread]:
    """Train on jobs whose run time depends (by default) on their GPUs alone, and shuffle their requests."""
    jobs = make_jobs(900, seed=4) if jobs is None else jobs
    frame = build(jobs, History.of(jobs), names)
    contract = FeatureContract.fit(frame)
    columns = Columns(names=contract.names, types=contract.kinds)
    target = 6.0 + np.log2(jobs["req_gpus"].to_numpy()) if target is None else target
    booster = boosting.fit(
        Rows(matrix=contract.encode(frame), target=target),
        columns,
        quantiles=(0.5,),
        boosting=Boosting(num_parallel_tree=1),
        seed=0,
        nthread=1,
    )

    return importance.permuted_requests(frame, jobs, contract, scored(booster, target), seed=0)


def test_a_resource_is_charged_for_itself_and_not_for_what_its_ratio_says_of_another() -> None:
    found = requests_measured(["req_gpus", "req_cpu_cores", "req_mem_gib", "cpu_cores_per_gpu"])

    assert importance.important_resources(found, []) == ("gpus",)
    assert found["cpu_cores"].mean < 0.1 * found["gpus"].mean
    assert found["mem_gib"].mean < 0.01 * found["gpus"].mean


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_sign_of_a_resource_is_where_the_answer_goes_with_the_request(sign: float) -> None:
    jobs = make_jobs(900, seed=4)
    target = 6.0 + sign * np.log2(jobs["req_gpus"].to_numpy())

    found = requests_measured(["req_gpus", "cpu_cores_per_gpu", "role"], jobs, target)

    assert sign * (found["gpus"].sign or 0.0) > 0.9
    assert found["mem_gib"].sign is None, "no feature derives from it"
    without = requests_measured(["role", "task_type"], jobs, target)
    assert {spread.mean for spread in without.values()} == {0.0}
    assert requests_measured(["total_gpus", "instances", "role"], jobs, target)["gpus"].mean > 0.1


def test_a_request_that_only_tells_the_role_does_not_matter() -> None:
    jobs = make_jobs(900, seed=4).with_columns(
        role=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("ps")).otherwise(pl.lit("worker"))
    )
    jobs = jobs.with_columns(req_gpus=pl.when(pl.col("role") == "ps").then(0.0).otherwise(1.0))
    target = pl.Series(np.where(jobs["role"] == "ps", 5.0, 9.0))

    found = requests_measured(["req_gpus", "req_cpu_cores"], jobs, target.to_numpy())

    assert found["gpus"].mean == 0.0
    assert importance.important_resources(found, []) == ()


def test_a_small_share_of_the_total_is_not_important() -> None:
    requests = {"gpus": importance.Spread(mean=0.01, std=0.001)}
    rest: list[importance.Importance] = [{"feature": "user_run_s_p50_20", "mean": 0.99, "std": 0.0, "repeats": 5}]

    assert importance.important_resources(requests, rest) == ()
    assert importance.important_resources(requests, rest, least_share=0.005) == ("gpus",)


@pytest.mark.parametrize(("sign", "important"), [(-0.4, ("cpu_cores",)), (0.4, ()), (None, ())])
def test_a_signed_cut_keeps_only_what_a_larger_request_shortens(sign: float | None, important: tuple[str, ...]) -> None:
    spreads = {"cpu_cores": importance.Spread(mean=0.3, std=0.1, sign=sign)}

    assert importance.important_resources(spreads, []) == ("cpu_cores",)
    assert importance.important_resources(spreads, [], signed=True) == important


def test_copies_scored_row_by_row_give_what_whole_shuffled_columns_give() -> None:
    held, places = population(60, 1), [1, 2, 3]
    weights = np.array([0.0, 2.0, -3.0, 1.0])
    scored_rows: list[int] = []

    def score(matrix: Matrix, of: IntArray) -> importance.Scored:
        scored_rows.append(len(matrix))
        answer = np.nansum(matrix * weights, axis=1)
        return np.abs(answer - held.target[of]), answer

    found = importance.spreads_of_columns(held.matrix, places, score, seed=5)

    rng, rows = np.random.default_rng(5), np.arange(60)
    for place in places:
        losses = []
        for _ in range(importance.FEATURE_REPEATS):
            shown = held.matrix.copy()
            shown[:, place] = held.matrix[rng.permutation(60), place]
            losses.append(score(shown, rows)[0].mean())
        growths = np.array(losses) - score(held.matrix, rows)[0].mean()
        assert (found[place].mean, found[place].std) == pytest.approx((growths.mean(), growths.std()))
    assert sum(scored_rows[:61]) < 60 + 60 * len(places) * importance.FEATURE_REPEATS, "equal copies are not scored"

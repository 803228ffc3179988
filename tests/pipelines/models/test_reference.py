"""The reference of the like: what it is, what it is taken from, and that answers come back in seconds."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from features.build import build
from features.history import History
from features.references import LIKE, REFERENCE_FEATURES, made_relative, reference_log_s
from pipelines.models import evaluate, examples
from pipelines.models.boosting import Boosting
from pipelines.models.fitted import Recipe
from tests.pipelines.models.conftest import make_jobs


def row(like: float | None, every: float | None) -> pl.DataFrame:
    values = {name: [like if name.startswith("like") else every] for name in REFERENCE_FEATURES}
    return pl.DataFrame(values, schema=dict.fromkeys(values, pl.Float64))


@pytest.mark.parametrize(
    ("like", "every", "seconds"),
    [
        (100.0, 7.0, [100.0, 100.0]),
        (None, 7.0, [7.0, 7.0]),
        (None, None, [3600.0, 36_000.0]),
        (0.2, 7.0, [1.0, 1.0]),
    ],
)
def test_the_reference_is_of_similar_jobs_else_of_all_else_one_and_ten_hours(
    like: float | None, every: float | None, seconds: list[float]
) -> None:
    assert np.exp(reference_log_s(row(like, every))) == pytest.approx(np.array([seconds]))


def test_the_windows_are_averaged_in_logs() -> None:
    frame = row(100.0, 7.0).with_columns(pl.lit(10_000.0).alias(LIKE["p90"][0]))

    assert reference_log_s(frame)[0] == pytest.approx([np.log(1e2), (np.log(1e4) + 2 * np.log(1e2)) / 3])


def test_run_times_are_taken_against_it_and_nothing_else_is() -> None:
    jobs = make_jobs(200, seed=1)
    frame = build(jobs, History.of(jobs), "wide")
    against = np.linspace(1.0, 9.0, jobs.height)

    seen = made_relative(frame, against)

    changed = {c for c in frame.columns if not frame[c].equals(seen[c])}
    assert seen.columns == frame.columns
    assert seen.schema == frame.schema
    assert {"like_run_s_p50_20", "user_run_s_p90_100", "all_log_run_mean_20", "like_newest1_so_far_s"} <= changed
    assert not changed & {
        "req_gpus",
        "instances",
        "user_failed_mean_20",
        "like_since_end_s",
        "group_log_run_std_20",
        "role",
    }
    last = frame["group_run_s_p50_20"].to_numpy()
    assert seen["group_run_s_p50_20"].to_numpy() == pytest.approx(np.log(np.maximum(last, 1)) - against, nan_ok=True)


@pytest.mark.slow
def test_a_workload_that_slows_down_by_factors_is_followed() -> None:
    jobs = make_jobs(1500, seed=6, span_days=400)
    run_s = (pl.col("run_s") * (pl.int_range(pl.len()) * 5 / pl.len()).exp()).round()
    jobs = jobs.with_columns(run_s=run_s).with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))
    recipe = Recipe(features="submit", boosting=Boosting(rounds=60, learning_rate=0.15, max_depth=4))
    until = jobs["submit_ts"][900]

    absolute, relative = (
        dict(evaluate.evaluate(jobs, trace="made", until=until, recipe=r).select("model", "pinball").iter_rows())
        for r in (replace(recipe, relative=False), recipe)
    )

    for answer in ("combined", "xgboost"):
        assert relative[answer] < 0.8 * absolute[answer]
    assert relative["forest"] < 0.9 * absolute["forest"]
    assert relative["combined"] < relative["recent_20"]


def test_features_outside_the_set_serve_the_reference_and_stay_outside() -> None:
    jobs = make_jobs(100, seed=2)

    made = examples.examples_of(
        jobs, None, "ctr", by="kind", history=History.of(jobs), names=["req_gpus", "user_run_s_p50_20"], relative=True
    )

    assert made.features.columns == ["req_gpus", "user_run_s_p50_20"]
    assert np.ptp(made.reference) > 0
    assert made.plain["user_run_s_p50_20"].to_numpy() == pytest.approx(
        np.exp(made.features["user_run_s_p50_20"].to_numpy() + made.reference[:, 0]), nan_ok=True
    )

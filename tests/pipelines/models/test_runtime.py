"""Run-time models end to end on made jobs: learnt before the cut, judged after it, and blind between."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.history import History
from pipelines.errors import TrainingError
from pipelines.models import boosting, evaluate, examples, fitted, runtime, splits
from pipelines.models.boosting import Boosting
from pipelines.models.fitted import Recipe
from pipelines.models.model import TrainedModel
from tests.pipelines.models.conftest import T0, MakeJobs, make_jobs

CUT = T0 + timedelta(days=30)
QUICK = Recipe(boosting=Boosting(rounds=60, patience=8, learning_rate=0.15, max_depth=4, reg_lambda=1.0))


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return make_jobs(1500, seed=3)


@pytest.fixture(scope="module")
def model(made: pl.DataFrame) -> TrainedModel:
    return runtime.train_runtime(made, trace="made", until=CUT, recipe=QUICK, forest=False)[0]


def test_a_model_says_what_it_is_and_what_it_was_trained_on(made: pl.DataFrame, model: TrainedModel) -> None:
    assert (model.name, model.kind, model.quantiles) == ("runtime.made.ctr", "runtime", (0.5, 0.9))
    assert model.rows == made.filter(pl.col("end_ts") < CUT).height
    assert model.support == {"cpu_cores": (4.0, 8.0), "mem_gib": (16.0, 64.0), "gpus": (0.25, 2.0)}
    assert set(model.offsets) == {"p50", "p90"}
    assert list(model.boosters) == ["run_s"]
    assert model.important == ("gpus",)
    assert [(each["resource"], each["repeats"]) for each in model.resource_importances] == [
        ("cpu_cores", 5),
        ("mem_gib", 5),
        ("gpus", 5),
    ]
    assert [each["mean"] for each in model.resource_importances] == [
        model.metrics[f"importance_{each['resource']}"] for each in model.resource_importances
    ]
    assert model.metrics["pinball"] == model.evaluation["pinball"][0]


def test_it_beats_every_history_baseline_where_there_is_more_to_know(model: TrainedModel) -> None:
    baselines = model.evaluation.filter(pl.col("model") != "xgboost")

    assert baselines.height >= 5
    assert baselines["lead"].min() > 0
    assert baselines["lead_lo"].sort()[1] > 0
    assert 0.84 < model.metrics["coverage_p90"] < 0.95


def test_its_history_holds_nothing_of_what_came_after_the_cut(model: TrainedModel) -> None:
    frame = model.history.frame

    assert frame["submit_ts"].max() < CUT
    assert frame["end_ts"].drop_nulls().max() < CUT
    assert frame.filter(pl.col("end_ts").is_null())["run_s"].drop_nulls().is_empty()


def test_what_came_after_the_cut_changes_neither_trees_nor_offsets(made: pl.DataFrame, model: TrainedModel) -> None:
    ahead = pl.col("end_ts") >= CUT
    other = made.with_columns(
        run_s=pl.when(ahead).then(pl.col("run_s") * 7).otherwise("run_s"),
        end_ts=pl.when(ahead).then(pl.col("end_ts") + timedelta(hours=3)).otherwise("end_ts"),
    )

    again = runtime.train_runtime(other, trace="made", until=CUT, recipe=QUICK, forest=False)[0]

    assert again.boosters["run_s"].save_raw("ubj") == model.boosters["run_s"].save_raw("ubj")
    assert again.offsets == model.offsets
    assert again.data_fingerprint == model.data_fingerprint
    assert again.metrics["pinball"] != model.metrics["pinball"]


def test_the_same_rows_and_seed_give_the_same_model_whatever_the_order(made: pl.DataFrame, model: TrainedModel) -> None:
    shuffled = made[np.random.default_rng(0).permutation(made.height)]

    again = runtime.train_runtime(shuffled, trace="made", until=CUT, recipe=QUICK, forest=False)[0]

    assert again.boosters["run_s"].save_raw("ubj") == model.boosters["run_s"].save_raw("ubj")
    assert again.evaluation.equals(model.evaluation)
    assert again.importances == model.importances


def test_evaluate_fits_the_model_that_train_fits(made: pl.DataFrame, model: TrainedModel) -> None:
    table = evaluate.evaluate(made, trace="made", since=CUT, recipe=QUICK, forest=False)

    assert table.equals(model.evaluation)


def test_types_with_too_few_jobs_get_no_model(jobs_maker: MakeJobs) -> None:
    few = jobs_maker(40, 9, task_type="nlp").with_columns(job_id="n" + pl.col("job_id"))
    both = pl.concat([jobs_maker(400, 1), few])

    models = runtime.train_runtime(both, trace="made", until=CUT, recipe=QUICK, forest=False)

    assert [m.task_type for m in models] == ["ctr"]
    with pytest.raises(TrainingError, match="has 60 jobs that ended before"):
        runtime.train_runtime(few, trace="made", until=CUT, recipe=QUICK, forest=False)


def test_models_go_by_workload_when_asked(jobs_maker: MakeJobs) -> None:
    jobs = jobs_maker(300, 1).with_columns(workload=pl.lit("resnet"))

    models = runtime.train_runtime(jobs, trace="made", by="workload", until=CUT, recipe=QUICK, forest=False)

    assert [m.name for m in models] == ["runtime.made.resnet"]


def test_without_a_cut_the_latest_fifth_is_judged(jobs: pl.DataFrame) -> None:
    table = evaluate.evaluate(jobs, trace="made", recipe=QUICK, forest=False)

    assert table["n"][0] == pytest.approx(0.2 * jobs.height, abs=2)


@pytest.mark.parametrize(("split", "n"), [("random", 120), ("group", 600)])
def test_other_splits_judge_the_rows_they_hold_out(jobs: pl.DataFrame, split: splits.SplitName, n: int) -> None:
    table = evaluate.evaluate(jobs, trace="made", split=split, folds=3, repeats=2, recipe=QUICK, forest=False)

    assert table["n"].unique().to_list() == [n]
    assert table["split"].unique().to_list() == [split]
    assert np.isfinite(table["pinball"].to_numpy()).all()


def test_the_forest_stands_in_the_same_table(jobs: pl.DataFrame) -> None:
    table = evaluate.evaluate(jobs, trace="made", recipe=QUICK)

    forest = table.row(by_predicate=pl.col("model") == "random_forest", named=True)
    worst = table.row(by_predicate=pl.col("model") == "global_median", named=True)
    assert forest["pinball"] < worst["pinball"]


def test_a_cut_before_every_job_is_refused(jobs: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="move the cut"):
        evaluate.evaluate(jobs, trace="made", until=T0 - timedelta(days=1), forest=False)


def long_at_the_cut() -> pl.DataFrame:
    """Return jobs of which a fifth run for days, so that many long ones have not ended at the cut."""
    jobs = make_jobs(1500, seed=5, span_days=20)
    long = pl.int_range(pl.len()) % 5 == 0
    run_s = pl.when(long).then(pl.col("run_s") + 8 * 86400).otherwise("run_s")
    return jobs.with_columns(run_s=run_s).with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))


@pytest.mark.parametrize("censored", ["weights", "absent"])
def test_censoring_weights_favour_the_long_jobs_that_did_end(censored: str) -> None:
    jobs, until = long_at_the_cut(), T0 + timedelta(days=15)
    made = examples.examples_of(jobs, None, "ctr", by="kind", history=History.of(jobs), names="request")
    split = splits.time_later(made.jobs, until=until)

    weights = fitted.row_weights(
        made, split.train, split, replace(QUICK, censored=censored, half_life_days=None), until
    )

    long = made.run_s[split.train] > 8 * 86400
    ratio = weights[split.train][long].mean() / weights[split.train][~long].mean()
    assert len(split.censored) > 50
    assert ratio > 1.3 if censored == "weights" else ratio == 1.0
    assert weights[split.train].mean() == pytest.approx(1.0)
    assert not weights[split.test].any()


def test_recency_halves_the_weight_with_every_half_life(jobs: pl.DataFrame) -> None:
    made = examples.examples_of(jobs, None, "ctr", by="kind", history=History.of(jobs), names="request")
    split = splits.time_later(made.jobs, until=CUT)

    weights = fitted.row_weights(made, split.train, split, replace(QUICK, half_life_days=5.0), None)

    days = made.submit_us[split.train] / 86_400e6
    slope = np.polyfit(days, np.log2(weights[split.train]), 1)[0]
    assert slope == pytest.approx(0.2)


def test_completed_only_learns_from_completed_jobs_and_judges_all(jobs: pl.DataFrame) -> None:
    failed = pl.int_range(pl.len()) % 3 == 0
    mixed = jobs.with_columns(status=pl.when(failed).then(pl.lit("failed")).otherwise("status"))
    recipe = replace(QUICK, completed_only=True)

    model = runtime.train_runtime(mixed, trace="made", until=CUT, recipe=recipe, forest=False)[0]

    ended = mixed.filter(pl.col("end_ts") < CUT)
    assert model.rows == ended.filter(pl.col("status") == "completed").height
    assert model.evaluation["n"][0] == mixed.filter(pl.col("submit_ts") >= CUT).height


def test_served_answers_equal_those_of_the_contract_and_the_booster(made: pl.DataFrame, model: TrainedModel) -> None:
    frame = examples.examples_of(
        made, None, "ctr", by="kind", history=History.of(made), names=model.contract.names
    ).features

    answer = boosting.predict(model.boosters["run_s"], model.contract.encode(frame))

    assert answer.shape == (made.height, 2)
    assert np.isfinite(answer).all()


def test_parameter_servers_decide_neither_importance_nor_support(made: pl.DataFrame) -> None:
    # Workers ask 6 cores and their servers 1 or 2; servers run far longer, so over all roles cores would matter.
    served = pl.int_range(pl.len()) % 2 == 0
    jobs = made.with_columns(
        role=pl.when(served).then(pl.lit("ps")).otherwise(pl.lit("worker")),
        req_cpu_cores=pl.when(served).then(1.0 + (pl.int_range(pl.len()) // 2 % 2)).otherwise(6.0),
    )

    [model] = runtime.train_runtime(jobs, trace="toy", types=["ctr"], forest=False)

    assert model.support["cpu_cores"] == (6.0, 6.0)
    [cores] = [each for each in model.resource_importances if each["resource"] == "cpu_cores"]
    assert cores["mean"] == 0.0
    assert "cpu_cores" not in model.important
    assert examples.support_of(jobs.filter(pl.col("role") == "ps"))["cpu_cores"] == (1.0, 2.0)

"""Run-time models end to end on made jobs: learnt before the cut, judged after it, and blind between."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.history import History
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import COMBINABLE, CombinationState
from modelserve.bundle.combination import FITTED
from modelserve.bundle.run_times import run_time_features, run_time_quantiles
from pipelines.errors import TrainingError
from pipelines.models import boosting, evaluate, examples, runtime, splits
from pipelines.models.boosting import Boosting
from pipelines.models.fitted import LEAST_TRAINED, UNTRAINED, Recipe
from pipelines.models.judging import COMBINED
from pipelines.models.model import TrainedModel, write_model
from tests.pipelines.models.conftest import T0, MakeJobs, make_jobs

CUT = T0 + timedelta(days=30)
QUICK = Recipe(boosting=Boosting(rounds=60, patience=8, learning_rate=0.15, max_depth=4, reg_lambda=1.0))


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return make_jobs(1500, seed=3)


@pytest.fixture(scope="module")
def model(made: pl.DataFrame) -> TrainedModel:
    return runtime.train_runtime(made, trace="made", until=CUT, recipe=QUICK)[0]


def test_a_model_says_what_it_is_and_what_it_was_trained_on(made: pl.DataFrame, model: TrainedModel) -> None:
    assert (model.name, model.kind, model.quantiles) == ("runtime.made.ctr", "runtime", (0.5, 0.9))
    assert model.rows == made.filter(pl.col("end_ts") < CUT).height
    assert model.support == {"cpu_cores": (4.0, 8.0), "mem_gib": (16.0, 64.0), "gpus": (0.25, 2.0)}
    assert stored(model).members == COMBINABLE
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
    assert model.evaluation["model"][0] == COMBINED
    assert model.metrics["pinball"] == model.evaluation["pinball"][0]


def test_it_beats_every_history_baseline_where_there_is_more_to_know(model: TrainedModel) -> None:
    baselines = model.evaluation.filter(~pl.col("model").is_in([COMBINED, *COMBINABLE]))

    assert baselines.height >= 5
    assert baselines["lead"].min() > 0
    assert baselines["lead_lo"].min() > 0
    assert 0.84 < model.metrics["coverage_p90"] < 0.95


def test_it_beats_its_members_that_are_not_fitted_and_keeps_up_with_those_that_are(model: TrainedModel) -> None:
    members = model.evaluation.filter(pl.col("model").is_in(COMBINABLE))
    unfitted = members.filter(~pl.col("model").is_in(FITTED))

    assert model.evaluation["model"].to_list()[: len(COMBINABLE) + 1] == [COMBINED, *COMBINABLE]
    assert unfitted["lead_lo"].min() > 0
    assert members["lead"].min() > -0.02 * model.evaluation["pinball"][0]


def test_the_forest_is_better_than_the_medians_of_all_jobs_and_of_users(model: TrainedModel) -> None:
    losses = dict(model.evaluation.select("model", "pinball").iter_rows())

    assert losses["forest"] < min(losses[name] for name in ("global_median", "user_median", "newest_jobs", "reference"))


def test_its_history_holds_nothing_of_what_came_after_the_cut(model: TrainedModel) -> None:
    frame = model.history.frame

    assert frame["submit_ts"].max() < CUT
    assert frame["end_ts"].drop_nulls().max() < CUT
    assert frame.filter(pl.col("end_ts").is_null())["run_s"].drop_nulls().is_empty()


def stored(model: TrainedModel) -> CombinationState:
    assert model.combination is not None
    return model.combination.stored()


def files_of_forest(model: TrainedModel) -> tuple[bytes, bytes]:
    assert model.forest is not None
    return model.forest.trees, model.forest.values


def test_what_came_after_the_cut_changes_neither_trees_nor_weights(made: pl.DataFrame, model: TrainedModel) -> None:
    ahead = pl.col("end_ts") >= CUT
    other = made.with_columns(
        run_s=pl.when(ahead).then(pl.col("run_s") * 7).otherwise("run_s"),
        end_ts=pl.when(ahead).then(pl.col("end_ts") + timedelta(hours=3)).otherwise("end_ts"),
    )

    again = runtime.train_runtime(other, trace="made", until=CUT, recipe=QUICK)[0]

    assert again.boosters["run_s"].save_raw("ubj") == model.boosters["run_s"].save_raw("ubj")
    assert files_of_forest(again) == files_of_forest(model)
    assert again.offsets == model.offsets == {"p50": 0.0, "p90": 0.0}
    assert stored(again) == stored(model)
    assert any(stored(again).state)
    assert again.data_fingerprint == model.data_fingerprint
    assert again.metrics["pinball"] != model.metrics["pinball"]


@pytest.mark.slow
def test_the_same_rows_and_seed_give_the_same_model_whatever_the_order(made: pl.DataFrame, model: TrainedModel) -> None:
    shuffled = made[np.random.default_rng(0).permutation(made.height)]

    again = runtime.train_runtime(shuffled, trace="made", until=CUT, recipe=QUICK)[0]

    assert again.boosters["run_s"].save_raw("ubj") == model.boosters["run_s"].save_raw("ubj")
    assert files_of_forest(again) == files_of_forest(model)
    assert stored(again) == stored(model)
    assert again.evaluation.equals(model.evaluation)
    assert again.importances == model.importances


def test_evaluate_fits_the_model_that_train_fits(made: pl.DataFrame, model: TrainedModel) -> None:
    table = evaluate.evaluate(made, trace="made", since=CUT, recipe=QUICK)

    assert table.equals(model.evaluation)


def test_types_get_a_model_as_soon_as_a_job_of_theirs_has_ended(jobs_maker: MakeJobs) -> None:
    few = jobs_maker(40, 9, task_type="nlp").with_columns(job_id="n" + pl.col("job_id"))
    later = few.filter(pl.col("submit_ts") >= CUT).with_columns(task_type=pl.lit("cv"), job_id="c" + pl.col("job_id"))
    every = pl.concat([jobs_maker(400, 1), few, later])

    models = runtime.train_runtime(every, trace="made", until=CUT, recipe=QUICK)

    ended = few.filter(pl.col("end_ts") < CUT).height
    assert [(m.task_type, m.rows) for m in models[1:]] == [("nlp", ended)]
    assert models[0].task_type == "ctr"
    assert later.height > 0
    assert ended < LEAST_TRAINED
    assert [m.forest is None for m in models] == [False, True]
    with pytest.raises(TrainingError, match=r"no job of made ended before 2021-03-31.*: move --until later"):
        runtime.train_runtime(later, trace="made", until=CUT, recipe=QUICK)


@pytest.mark.slow
def test_models_go_by_workload_when_asked(jobs_maker: MakeJobs) -> None:
    jobs = jobs_maker(300, 1).with_columns(workload=pl.lit("resnet"))

    models = runtime.train_runtime(jobs, trace="made", by="workload", until=CUT, recipe=QUICK)

    assert [m.name for m in models] == ["runtime.made.resnet"]


def test_without_a_cut_the_latest_fifth_is_judged(jobs: pl.DataFrame) -> None:
    table = evaluate.evaluate(jobs, trace="made", recipe=QUICK)

    assert table["n"][0] == pytest.approx(0.2 * jobs.height, abs=2)


@pytest.mark.slow
@pytest.mark.parametrize(("split", "n"), [("random", 120), ("group", 600)])
def test_other_splits_judge_the_rows_they_hold_out(jobs: pl.DataFrame, split: splits.SplitName, n: int) -> None:
    table = evaluate.evaluate(jobs, trace="made", split=split, folds=3, repeats=2, recipe=QUICK)

    assert table["n"].unique().to_list() == [n]
    assert table["split"].unique().to_list() == [split]
    assert np.isfinite(table["pinball"].to_numpy()).all()


def test_a_cut_before_every_job_is_refused(jobs: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="move the cut"):
        evaluate.evaluate(jobs, trace="made", until=T0 - timedelta(days=1))


@pytest.mark.slow
def test_completed_only_learns_from_completed_jobs_and_judges_all(jobs: pl.DataFrame) -> None:
    failed = pl.int_range(pl.len()) % 3 == 0
    mixed = jobs.with_columns(status=pl.when(failed).then(pl.lit("failed")).otherwise("status"))
    recipe = replace(QUICK, completed_only=True)

    model = runtime.train_runtime(mixed, trace="made", until=CUT, recipe=recipe)[0]

    ended = mixed.filter(pl.col("end_ts") < CUT)
    assert model.rows == ended.filter(pl.col("status") == "completed").height
    assert model.evaluation["n"][0] == mixed.filter(pl.col("submit_ts") >= CUT).height


@pytest.mark.parametrize("completed_until", [timedelta(0), timedelta(days=20)], ids=["none", "none of the latest"])
def test_without_completed_jobs_to_train_on_the_history_answers(tmp_path: Path, completed_until: timedelta) -> None:
    ended_well = pl.col("submit_ts") < T0 + completed_until
    jobs = make_jobs(200).with_columns(status=pl.when(ended_well).then(pl.lit("completed")).otherwise(pl.lit("failed")))

    [model] = runtime.train_runtime(jobs, trace="made", until=CUT, recipe=replace(QUICK, completed_only=True))
    write_model(model, tmp_path / "bundle", created=CUT)
    bundle = read_bundle(tmp_path / "bundle")

    assert model.rows == jobs.filter(ended_well).height
    assert stored(model).members == UNTRAINED
    answer = run_time_quantiles(bundle, run_time_features(bundle, jobs.tail(5)))
    assert np.isfinite([answer.p50, answer.p90]).all()
    assert (answer.p50 > 60.0).all()


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

    [model] = runtime.train_runtime(jobs, trace="toy", types=["ctr"], recipe=QUICK)

    assert model.support["cpu_cores"] == (6.0, 6.0)
    [cores] = [each for each in model.resource_importances if each["resource"] == "cpu_cores"]
    assert cores["mean"] == 0.0
    assert "cpu_cores" not in model.important
    assert examples.support_of(jobs.filter(pl.col("role") == "ps"))["cpu_cores"] == (1.0, 2.0)

"""Run-time models end to end on made jobs: learnt before the cut, judged after it, and served as judged."""

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.build import build
from features.history import History
from features.references import build_referenced
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import COMBINABLE, CombinationState, ResponseState, VerdictWord
from modelserve.bundle.combination import FITTED, forecasts_of
from modelserve.bundle.predictor import InProcessPredictor
from pipelines.engine.engine import Local
from pipelines.errors import TrainingError
from pipelines.models import boosting, examples, importance, runtime
from pipelines.models.boosting import Boosting, Rows
from pipelines.models.evaluate import Evaluation, learning_curves
from pipelines.models.examples import Setting
from pipelines.models.fitted import LEAST_TRAINED, UNTRAINED, combination_at
from pipelines.models.judging import COMBINED, Verdict
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast, primary_rows
from pipelines.models.model import TrainedModel, write_model
from pipelines.models.recipes import Recipe
from pipelines.models.retrain import models_of, train_units, units_of
from pipelines.models.runtime import train_runtime
from pipelines.models.splits import SplitName
from tests.modelserve.by_frame import jobs_in, run_times_of
from tests.pipelines.models.conftest import T0, MakeJobs, make_jobs
from tests.pipelines.models.test_fitted import QUICK as FEW_TREES
from tests.pipelines.models.test_fitted import case, fit

CUT = T0 + timedelta(days=30)
QUICK = Recipe(
    boosting=Boosting(rounds=60, patience=8, num_parallel_tree=1, learning_rate=0.15, max_depth=4, reg_lambda=1.0)
)


def train(jobs: pl.DataFrame, recipe: Recipe = QUICK, task_type: str = "ctr", **options: Any) -> TrainedModel:
    return train_runtime(Setting(**{"jobs": jobs, "trace": "made", "until": CUT, **options}), task_type, recipe)


def evaluated(jobs: pl.DataFrame, recipe: Recipe, split: SplitName = "time", **options: Any) -> pl.DataFrame:
    return Evaluation(setting=Setting(jobs=jobs, trace="made", **options), split=split, recipe=recipe).run()


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return make_jobs(1500, seed=3)


@pytest.fixture(scope="module")
def model(made: pl.DataFrame) -> TrainedModel:
    return train(made)


def stored(model: TrainedModel) -> CombinationState:
    assert model.combination is not None
    return model.combination.stored()


def files_of(model: TrainedModel) -> tuple[bytes, ...]:
    assert model.forest is not None
    return bytes(model.boosters["run_s"].save_raw("ubj")), model.forest.trees, model.forest.values


def test_a_model_says_what_it_is_and_what_it_was_trained_on(made: pl.DataFrame, model: TrainedModel) -> None:
    assert (model.name, model.kind, model.quantiles) == ("runtime.made.ctr", "runtime", (0.5, 0.9))
    assert model.rows == made.filter(pl.col("end_ts") < CUT).height
    assert model.support == {"cpu_cores": (4.0, 8.0), "mem_gib": (16.0, 64.0), "gpus": (0.25, 2.0)}
    assert stored(model).members == COMBINABLE
    assert list(model.boosters) == ["run_s", "response"]
    assert (model.response.trusted, model.important) == (True, ())  # run times are longer with more GPUs
    assert [(each["resource"], each["repeats"], each["mean"]) for each in model.resource_importances] == [
        (resource, 5, model.metrics[f"importance_{resource}"]) for resource in ("cpu_cores", "mem_gib", "gpus")
    ]
    assert model.evaluation["model"][0] == COMBINED
    assert model.metrics["pinball"] == model.evaluation["pinball"][0]


def test_it_beats_every_baseline_and_keeps_up_with_its_members(model: TrainedModel) -> None:
    members = model.evaluation.filter(pl.col("model").is_in(COMBINABLE))
    baselines = model.evaluation.filter(~pl.col("model").is_in([COMBINED, *COMBINABLE]))
    losses = dict(model.evaluation.select("model", "pinball").iter_rows())

    assert model.evaluation["model"].to_list()[: len(COMBINABLE) + 1] == [COMBINED, *COMBINABLE]
    assert baselines.height >= 5
    assert baselines["lead_lo"].min() > 0
    assert members.filter(~pl.col("model").is_in(FITTED))["lead_lo"].min() > 0
    assert members["lead"].min() > -0.02 * losses[COMBINED]
    assert losses["forest"] < min(losses[name] for name in ("global_median", "user_median", "newest_jobs", "reference"))
    assert 0.84 < model.metrics["coverage_p90"] < 0.95


def test_a_served_model_counts_every_job_of_its_tables(made: pl.DataFrame, model: TrainedModel, tmp_path: Path) -> None:
    write_model(model, tmp_path / "bundle", created=model.until)
    bundle = read_bundle(tmp_path / "bundle")
    last = made.select(pl.max_horizontal(pl.col("submit_ts", "end_ts").max())).item()
    asked = made[:200].with_columns(submit_ts=pl.lit(last + timedelta(seconds=1)))

    served, replayed = (build(asked, history, "submit") for history in (bundle.history, History.of(made)))

    assert bundle.card.until == CUT < last < bundle.known_until
    assert served.equals(replayed)


def test_a_feature_of_a_judged_job_counts_only_what_had_ended_before_it(
    made: pl.DataFrame, model: TrainedModel
) -> None:
    at = CUT + timedelta(days=3)
    asked = made[:200].with_columns(submit_ts=pl.lit(at))

    then = examples.history_at(made, None, at)
    assert build(asked, model.history, "submit").equals(build(asked, then, "submit"))


def test_what_came_after_the_cut_changes_neither_trees_nor_weights(made: pl.DataFrame, model: TrainedModel) -> None:
    ahead = pl.col("end_ts") >= CUT
    other = made.with_columns(
        run_s=pl.when(ahead).then(pl.col("run_s") * 1.2).otherwise("run_s"),
        end_ts=pl.when(ahead).then(pl.col("end_ts") + timedelta(hours=3)).otherwise("end_ts"),
    )

    again = train(other)

    assert files_of(again) == files_of(model)
    assert again.offsets == model.offsets == {"p50": 0.0, "p90": 0.0}
    assert stored(again) == stored(model)
    assert any(stored(again).state)
    assert again.data_fingerprint == model.data_fingerprint
    assert again.metrics["pinball"] != model.metrics["pinball"]


@pytest.mark.slow
def test_the_same_rows_and_seed_give_the_same_model_whatever_the_order(made: pl.DataFrame, model: TrainedModel) -> None:
    shuffled = made[np.random.default_rng(0).permutation(made.height)]

    again = train(shuffled)

    assert files_of(again) == files_of(model)
    assert stored(again) == stored(model)
    assert again.evaluation.equals(model.evaluation)
    assert again.importances == model.importances
    assert again.response == model.response
    assert model.metrics["response_lead"] == model.response.lead


def test_evaluate_fits_the_model_that_train_fits(made: pl.DataFrame, model: TrainedModel) -> None:
    assert evaluated(made, QUICK, until=CUT).equals(model.evaluation)


def test_types_get_a_model_as_soon_as_a_job_of_theirs_has_ended(jobs_maker: MakeJobs) -> None:
    few = jobs_maker(40, 9, task_type="nlp").with_columns(job_id="n" + pl.col("job_id"))
    later = few.filter(pl.col("submit_ts") >= CUT).with_columns(task_type=pl.lit("cv"), job_id="c" + pl.col("job_id"))
    every = pl.concat([jobs_maker(400, 1), few, later])

    setting = Setting(jobs=every, trace="made", until=CUT)
    units = units_of(setting, recipes=dict.fromkeys(("ctr", "nlp", "cv"), QUICK))

    models = models_of(units, train_units(Local(), setting, units))

    ended = few.filter(pl.col("end_ts") < CUT).height
    assert [(m.task_type, m.rows) for m in models[1:]] == [("nlp", ended)]
    assert models[0].task_type == "ctr"
    assert later.height > 0
    assert ended < LEAST_TRAINED
    assert [m.forest is None for m in models] == [False, True]
    with pytest.raises(TrainingError, match=r"no job of made ended before 2021-03-31.*: move --until later"):
        models_of(units[2:], train_units(Local(), setting, units[2:]))


@pytest.mark.slow
def test_models_go_by_workload_when_asked(jobs_maker: MakeJobs) -> None:
    jobs = jobs_maker(300, 1).with_columns(workload=pl.lit("resnet"))

    assert train(jobs, task_type="resnet", by="workload").name == "runtime.made.resnet"


@pytest.mark.slow
@pytest.mark.parametrize(("split", "n"), [("time", 600 - 479), ("group", 600)])
def test_a_split_judges_the_rows_that_it_holds_out(jobs: pl.DataFrame, split: SplitName, n: int) -> None:
    table = evaluated(jobs, FEW_TREES, split)

    assert table["n"].unique().to_list() == [n]
    assert table["split"].unique().to_list() == [split]
    assert np.isfinite(table["pinball"].to_numpy()).all()


def test_a_cut_before_every_job_is_refused(jobs: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="move the cut"):
        evaluated(jobs, QUICK, until=T0 - timedelta(days=1))


def test_parameter_servers_decide_neither_importance_nor_support(made: pl.DataFrame) -> None:
    # Workers ask 6 cores and their servers 1 or 2; servers run far longer, so over all roles cores would matter.
    served = pl.int_range(pl.len()) % 2 == 0
    jobs = made.with_columns(
        role=pl.when(served).then(pl.lit("ps")).otherwise(pl.lit("worker")),
        req_cpu_cores=pl.when(served).then(1.0 + (pl.int_range(pl.len()) // 2 % 2)).otherwise(6.0),
    )

    model = train(jobs, until=None)

    assert model.support["cpu_cores"] == (6.0, 6.0)
    [cores] = [each for each in model.resource_importances if each["resource"] == "cpu_cores"]
    assert cores["mean"] == 0.0
    assert "cpu_cores" not in model.important
    assert examples.support_of(jobs.filter(pl.col("role") == "ps"))["cpu_cores"] == (1.0, 2.0)


# Few jobs.


def served_in_memory(model: TrainedModel, jobs: pl.DataFrame) -> FloatArray:
    """Return the run times in seconds (n, 2) that a model answers before it is written."""
    assert model.combination is not None
    built = build_referenced(jobs, model.history, model.contract.names, relative=True)
    matrix = model.contract.encode(built.features)
    forest = None if model.forest is None else model.forest.forest.rows(matrix) + built.reference_log_s[:, :1]
    forecasts = forecasts_of(
        model.combination.members,
        xgboost=boosting.predict(model.boosters["run_s"], matrix) + built.reference_log_s,
        forest=forest,
        reference_log_s=built.reference_log_s,
        history_log_s=built.history_log_s,
    )
    return np.exp(model.combination.combined(forecasts))


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.slow), 120])
def test_a_model_of_few_jobs_answers_the_same_before_and_after_it_was_written(count: int, tmp_path: Path) -> None:
    every, _, until = case(count)
    small = train(every.jobs, FEW_TREES, until=until)
    jobs = every.jobs.tail(8)
    expected = served_in_memory(small, jobs)

    write_model(small, tmp_path / "bundle", created=small.until)
    bundle = read_bundle(tmp_path / "bundle")

    asked = jobs_in(jobs)
    requests = np.array([job.request.row() for job in asked])
    answer = InProcessPredictor(bundles={small.name: bundle}).run_times(asked, np.arange(len(asked)), requests)
    for found in (answer, run_times_of(bundle, jobs)):
        assert np.isfinite([found.p50, found.p90]).all()
        assert found.p50 == pytest.approx(expected[:, 0], rel=1e-9)
        assert found.p90 == pytest.approx(expected[:, 1], rel=1e-9)
    assert (answer.p50 > 1.0).all()
    assert (answer.p50 <= answer.p90).all()
    assert bundle.card.combination == stored(small)
    assert (bundle.card.rows, bundle.quantile_forest is None) == (small.rows, small.rows < LEAST_TRAINED)
    assert bundle.card.metrics == {k: v if math.isfinite(v) else None for k, v in small.metrics.items()}
    assert math.isfinite(small.metrics["pinball"])


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_trace_with_few_jobs_is_judged(count: int) -> None:
    every, split, until = case(count)

    table = evaluated(every.jobs, FEW_TREES, until=until)

    losses = dict(table.select("model", "pinball").iter_rows())
    assert list(losses)[:5] == [COMBINED, *UNTRAINED]
    assert {"recent_20", "group_median"} <= set(losses)
    assert table["n"].unique().to_list() == [len(split.test)]
    assert np.isfinite(list(losses.values())).all()


def test_without_later_jobs_history_answers_meanwhile() -> None:
    model = train(case(5)[0].jobs[:5], FEW_TREES, until=T0 + timedelta(days=99))

    assert (model.rows, model.evaluation.height, model.answer) == (5, 0, "history")
    assert (model.metrics, model.importances, model.resource_importances, model.important) == ({}, [], [], ())
    assert model.matters_most == "none: run times of ended jobs answer alone, without columns to permute"


def test_importances_are_of_the_forecast_that_serves_so_a_column_that_only_the_forest_uses_is_found() -> None:
    every, split, until = case(200)
    found = fit(200)
    of_gpus = {name for name in found.columns.names if "gpu" in name}
    blind, train_rows = found.matrix.copy(), split.train
    blind[:, [found.columns.names.index(name) for name in of_gpus]] = 1.0
    seeing = replace(FEW_TREES.boosting, min_child_weight=5.0)
    rows = Rows(matrix=blind[train_rows], target=every.log_y[train_rows], margin=every.reference[train_rows])
    booster = boosting.fit(rows, found.columns, quantiles=QUANTILES, boosting=seeing, seed=0, nthread=1)
    unseeing = replace(found, booster=booster)

    def importances(*only: str) -> dict[str, importance.Importance]:
        rows, _ = runtime._importances(every, unseeing, combination_at(every, unseeing, until, only=only), seed=0)
        return {str(row["feature"]): row for row in rows}

    of_both, of_xgboost, of_history = (
        importances(*only) for only in (("xgboost", "forest"), ("xgboost",), ("similar_jobs", "newest_jobs"))
    )

    assert next(iter(of_both)) in of_gpus
    assert of_both["req_gpus"]["mean"] > 2 * of_both["req_gpus"]["std"]
    assert of_both["req_gpus"]["sign"] > 0.5, "more GPUs come with longer runs in these jobs"
    assert of_both["req_gpus"]["xgboost_gain"] == of_xgboost["req_gpus"]["mean"] == 0.0
    assert sum(row["xgboost_gain"] for row in of_xgboost.values()) == pytest.approx(1.0)
    assert of_history == {}


@pytest.mark.parametrize(("word", "important"), [("level", ("gpus",)), ("too few", ())])
def test_only_a_proven_forecast_holds_a_request_back(
    word: VerdictWord, important: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    every, _, until = case(200)
    untrusted = ResponseState(trusted=False, why="not asked", rows=0), None, ()
    monkeypatch.setattr(runtime, "judge", lambda *_: Verdict(word=word, reasons=("said",)))
    monkeypatch.setattr(runtime, "response_of", lambda *_, **__: untrusted)

    model = train(every.jobs, FEW_TREES, until=until)

    assert model.importances
    assert model.important == important


def test_a_fold_without_trees_is_compared_on_what_all_folds_answer(jobs: pl.DataFrame) -> None:
    # Sixty jobs in five folds: each is fitted on at most 48.
    table = evaluated(jobs[:60], FEW_TREES, "group")

    assert not {"xgboost", "forest"} & set(table["model"])
    assert table["n"].unique().to_list() == [60]


def test_a_learning_curve_ends_at_the_loss_of_the_whole_booster() -> None:
    every, split, _ = case(200)
    fitted, test = fit(200), split.test
    raw = boosting.predict(fitted.booster, fitted.matrix[test]) + every.reference[test]

    judged, unjudged = learning_curves(every, fitted, test), learning_curves(every, fitted, test[:0])

    losses = primary_rows(every.log_y[test], Forecast(p50=raw[:, 0], p90=raw[:, 1]))
    assert judged["round"].to_list() == list(range(1, fitted.rounds + 1))
    assert judged["later"][-1] == pytest.approx(float(losses.mean()), rel=1e-5)
    assert judged["latest_trained"][-1] < judged["latest_trained"][0]
    assert unjudged["later"].null_count() == fitted.rounds
    assert unjudged["latest_trained"].null_count() == 0

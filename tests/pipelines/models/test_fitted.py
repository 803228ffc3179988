"""Fitting with few rows and many, and what the combination learns from."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.history import History
from features.references import build_referenced
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.combination import Combination, forecasts_of
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.run_times import run_time_features, run_time_quantiles
from pipelines.models import boosting, evaluate, fitted, runtime
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Examples, examples_of
from pipelines.models.fitted import LEAST_TRAINED, UNTRAINED, Fitted, Recipe, combination_at, combined, fit_runtime
from pipelines.models.judging import COMBINED
from pipelines.models.metrics import QUANTILES, FloatArray
from pipelines.models.model import TrainedModel, write_model
from pipelines.models.splits import Split, random_split, time_later
from scheduler_core.types import Job, Request
from tests.pipelines.models.conftest import T0, make_jobs

QUICK = Recipe(
    features="request", boosting=Boosting(rounds=12, patience=6, num_parallel_tree=1, learning_rate=0.3, max_depth=3)
)
LATER = 30
"""Number of jobs submitted after the cut."""


def known(jobs: pl.DataFrame) -> Examples:
    return examples_of(
        jobs, None, "ctr", by="kind", history=History.of(jobs), names=QUICK.features, relative=QUICK.relative
    )


@cache
def case(count: int) -> tuple[Examples, Split, datetime]:
    """Return examples of which `count` ended before the cut; every job ends before the next is submitted."""
    n = count + LATER
    jobs = make_jobs(n, seed=count).with_columns(
        submit_ts=T0 + pl.int_range(n) * timedelta(days=1), run_s=pl.min_horizontal("run_s", 50_000.0)
    )
    jobs = jobs.with_columns(start_ts=pl.col("submit_ts"), queue_s=0.0)
    jobs = jobs.with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))
    examples = known(jobs)
    until = T0 + timedelta(days=count) - timedelta(hours=1)
    return examples, time_later(examples.jobs, until=until), until


@cache
def fit(count: int) -> Fitted:
    examples, split, until = case(count)
    return fit_runtime(examples, split, QUICK, until=until, seed=0, nthread=1)


@pytest.mark.parametrize("count", [1, 2, LEAST_TRAINED - 1])
def test_with_few_rows_no_trees_are_grown_and_the_history_answers(count: int) -> None:
    examples, split, _ = case(count)
    found = fit(count)

    assert found.trained.tolist() == list(range(count)) == sorted(split.train.tolist())
    assert (found.forest, found.rounds) == (None, 0)
    assert found.start.members == UNTRAINED == ("reference", "similar_jobs", "same_gpus", "newest_jobs")
    assert found.start.weights(0.5).tolist() == found.start.weights(0.9).tolist() == [0.25] * 4
    assert boosting.predict(found.booster, found.matrix).tolist() == [[0.0, 0.0]] * (count + LATER)
    answer = combined(examples, found)
    assert np.isfinite([answer.p50, answer.p90]).all()
    assert (answer.p50 <= answer.p90).all()
    assert len(answer.p50) == LATER


@pytest.mark.parametrize("count", [LEAST_TRAINED, 200])
def test_with_enough_rows_trees_are_grown_and_the_final_fits_answer_for_later_jobs(count: int) -> None:
    examples, split, _ = case(count)
    found = fit(count)

    assert found.trained.tolist() == list(range(count))
    assert found.forest is not None
    assert found.rounds >= min(fitted.LEAST_ROUNDS, QUICK.boosting.rounds)
    assert found.start.members == COMBINABLE
    assert found.start.weights(0.5)[0] == pytest.approx(count / (count + 2000) / 2)
    later, reference = split.test, examples.reference[split.test]
    by_trees = np.sort(boosting.predict(found.booster, found.matrix[later]) + reference, axis=1)
    by_forest = np.sort(found.forest.forest.rows(found.matrix[later]) + reference[:, :1], axis=1)
    assert quantiles(found, "xgboost", later).tolist() == by_trees.tolist()
    assert quantiles(found, "forest", later).tolist() == by_forest.tolist()
    assert np.ptp(by_trees - reference) > 0


def quantiles(found: Fitted, member: str, rows: np.ndarray) -> FloatArray:
    answer = found.of_member(member, rows)
    return np.stack([answer.p50, answer.p90], axis=1)


def test_rows_that_trees_were_fitted_on_have_no_forecast_and_stopping_rows_one_of_the_first_fits() -> None:
    _, split, _ = case(200)
    found = fit(200)

    answered = ~np.isnan(found.forecasts)
    assert answered.all(axis=(1, 2))[split.stop].all()
    assert not answered[split.fit][:, :2].any()
    assert answered[split.test].all()
    final = boosting.predict(found.booster, found.matrix[split.stop]) + case(200)[0].reference[split.stop]
    assert quantiles(found, "xgboost", split.stop).tolist() != np.sort(final, axis=1).tolist()


def test_a_stopping_rows_run_time_changes_no_forecast_of_its_own() -> None:
    # Its forecast comes from trees that did not see it; only the number of rounds may, so one round is given.
    examples, split, until = case(LEAST_TRAINED)
    recipe = replace(QUICK, boosting=replace(QUICK.boosting, rounds=1))
    row = int(split.stop[-1])
    changed = examples.log_y.copy()
    changed[row] += 3.0

    one, other = (
        fit_runtime(each, split, recipe, until=until, seed=0, nthread=1)
        for each in (examples, replace(examples, log_y=changed))
    )

    assert one.forecasts[split.stop].tobytes() == other.forecasts[split.stop].tobytes()
    assert one.booster.save_raw("ubj") != other.booster.save_raw("ubj")


def test_the_members_that_need_no_training_are_the_reference_and_the_history() -> None:
    examples, split, _ = case(200)
    rows = split.test

    assert quantiles(fit(200), "reference", rows).tolist() == examples.reference[rows].tolist()
    for place, name in enumerate(("similar_jobs", "same_gpus", "newest_jobs")):
        assert quantiles(fit(200), name, rows).tolist() == examples.history[rows, place].tolist()


def test_jobs_that_were_submitted_together_grow_no_trees() -> None:
    # All of them are the latest, so none is left to fit on before the stopping rows.
    examples, split, until = case(200)
    together = replace(split, fit=split.fit[:0], stop=split.train)

    found = fit_runtime(examples, together, QUICK, until=until, seed=0, nthread=1)

    assert found.forest is None
    assert len(found.trained) == 200
    assert np.isfinite(combined(examples, found).p90).all()


# What the combination learns from.


def taught(start: Combination, examples: Examples, found: Fitted, rows: list[int]) -> Combination:
    for row in rows:
        start = start.learnt(found.forecasts[row], float(examples.log_y[row]))
    return start


@pytest.mark.parametrize("count", [LEAST_TRAINED - 1, 200])
def test_each_later_job_is_forecast_with_what_the_jobs_before_it_taught(count: int) -> None:
    # Every job ends before the next is submitted. Rows that trees were fitted on teach nothing.
    examples, split, _ = case(count)
    found = fit(count)
    first = split.stop.tolist() if count >= LEAST_TRAINED else list(range(count))

    answer = combined(examples, found)

    for place, row in enumerate(split.test.tolist()):
        then = taught(found.start, examples, found, [*first, *split.test[:place].tolist()])
        assert [answer.p50[place], answer.p90[place]] == then.combined(found.forecasts[row : row + 1])[0].tolist()


@pytest.mark.parametrize("count", [2, 200])
def test_the_combination_at_the_cut_has_learnt_from_what_ended_before_it(count: int) -> None:
    examples, split, until = case(count)
    found = fit(count)

    at_cut = combination_at(examples, found, until)
    alone = combination_at(examples, found, until, only=("reference",))

    rows = split.stop.tolist() if count >= LEAST_TRAINED else list(range(count))
    assert at_cut.state.tobytes() == taught(found.start, examples, found, rows).state.tobytes()
    assert at_cut.state.any()
    assert (alone.members, alone.weights(0.9).tolist()) == (("reference",), [1.0])


def test_one_member_alone_answers_with_its_own_forecasts_and_an_offset_of_its_own() -> None:
    examples, split, _ = case(200)

    answer = combined(examples, fit(200), only=("forest",))

    own = fit(200).of_member("forest", split.test)
    assert answer.p50.tolist() == own.p50.tolist()
    assert (answer.p90 >= own.p90).all()


def test_splits_that_are_not_ordered_by_time_learn_from_stopping_rows_alone() -> None:
    examples, _, _ = case(200)
    split = random_split(examples.jobs, seed=1)
    found = fit_runtime(examples, split, QUICK, until=None, seed=0, nthread=1)

    answer = combined(examples, found)

    stop = sorted(split.stop.tolist(), key=lambda row: examples.end_us[row])
    expected = taught(found.start, examples, found, stop).combined(found.forecasts[split.test])
    assert np.stack([answer.p50, answer.p90], axis=1).tolist() == expected.tolist()


# Models of few jobs, as they are served and judged.


@pytest.fixture(scope="module", params=[1, 5, 120])
def small(request: pytest.FixtureRequest) -> TrainedModel:
    examples, _, until = case(request.param)
    [model] = runtime.train_runtime(examples.jobs, trace="made", until=until, recipe=QUICK)
    return model


def served_in_memory(model: TrainedModel, jobs: pl.DataFrame) -> FloatArray:
    """Return the run times in seconds (n, 2) that a model answers before it is written."""
    assert model.combination is not None
    built = build_referenced(jobs, model.history, model.contract.names, relative=model.relative)
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


def job_of(row: dict) -> Job:
    request = Request(cpu_cores=row["req_cpu_cores"], mem_gib=row["req_mem_gib"], gpus=row["req_gpus"])
    same = ("trace", "cluster", "job_id", "role", "user", "group", "task_type", "workload", "gpu_type", "instances")
    return Job(**{name: row[name] for name in same}, request=request, submit_ts=row["submit_ts"].timestamp())


def test_a_model_of_few_jobs_answers_the_same_before_and_after_it_was_written(
    small: TrainedModel, tmp_path: Path
) -> None:
    jobs = case(small.rows)[0].jobs.tail(8)
    expected = served_in_memory(small, jobs)

    write_model(small, tmp_path / "bundle", created=small.until)
    bundle = read_bundle(tmp_path / "bundle")

    asked = [job_of(row) for row in jobs.to_dicts()]
    requests = np.array([job.request.row() for job in asked])
    answer = InProcessPredictor(bundles={small.name: bundle}).run_times(asked, np.arange(len(asked)), requests)
    by_frame = run_time_quantiles(bundle, run_time_features(bundle, jobs))
    for found in (answer, by_frame):
        assert np.isfinite([found.p50, found.p90]).all()
        assert found.p50 == pytest.approx(expected[:, 0], rel=1e-9)
        assert found.p90 == pytest.approx(expected[:, 1], rel=1e-9)
    assert (answer.p50 > 1.0).all()
    assert (answer.p50 <= answer.p90).all()
    assert bundle.card.combination == (small.combination and small.combination.stored())
    assert (bundle.card.rows, bundle.quantile_forest is None) == (small.rows, small.rows < LEAST_TRAINED)
    assert bundle.card.metrics == {k: v if math.isfinite(v) else None for k, v in small.metrics.items()}
    assert math.isfinite(small.metrics["pinball"])


@pytest.mark.parametrize("count", [1, 5])
def test_a_trace_with_few_jobs_is_judged(count: int) -> None:
    examples, split, until = case(count)

    table = evaluate.evaluate(examples.jobs, trace="made", until=until, recipe=QUICK)

    losses = dict(table.select("model", "pinball").iter_rows())
    assert list(losses)[:5] == [COMBINED, *UNTRAINED]
    assert {"recent_20", "group_median"} <= set(losses)
    assert table["n"].unique().to_list() == [len(split.test)]
    assert np.isfinite(list(losses.values())).all()


def test_a_model_without_later_jobs_passes_unjudged() -> None:
    examples, _, _ = case(5)
    [model] = runtime.train_runtime(examples.jobs[:5], trace="made", until=T0 + timedelta(days=99), recipe=QUICK)

    assert (model.rows, model.evaluation.height, model.answer) == (5, 0, COMBINED)
    assert set(model.metrics) == {"importance_cpu_cores", "importance_mem_gib", "importance_gpus"}


def test_a_fold_without_trees_is_compared_on_what_all_folds_answer(jobs: pl.DataFrame) -> None:
    # Sixty jobs in three folds: each is fitted on forty.
    table = evaluate.evaluate(jobs[:60], trace="made", split="group", folds=3, repeats=1, recipe=QUICK)

    assert not {"xgboost", "forest"} & set(table["model"])
    assert table["n"].unique().to_list() == [60]
    with_trees = evaluate.evaluate(jobs[:60], trace="made", split="random", recipe=QUICK, seed=2)
    assert with_trees["n"].unique().to_list() == [12]


def test_without_a_model_the_first_jobs_are_forecast_from_the_history() -> None:
    ours, recent = evaluate.first_jobs(case(200)[0].jobs, 60)
    whole = fitted.untrained(known(case(200)[0].jobs.head(60)))

    assert 0 < ours < recent
    assert np.isfinite([whole.p50, whole.p90]).all()
    assert np.exp([whole.p50[0], whole.p90[0]]) == pytest.approx([3600.0, 36_000.0])
    assert QUANTILES == (0.5, 0.9)

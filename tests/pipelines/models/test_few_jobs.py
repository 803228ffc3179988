"""Models of few jobs, as they are served and judged."""

import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.references import build_referenced
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.combination import forecasts_of
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.run_times import run_time_features, run_time_quantiles
from pipelines.models import boosting, evaluate, fitted, runtime
from pipelines.models.fitted import LEAST_TRAINED, UNTRAINED
from pipelines.models.judging import COMBINED
from pipelines.models.metrics import QUANTILES, FloatArray
from pipelines.models.model import TrainedModel, write_model
from scheduler_core.types import Job, Request
from tests.pipelines.models.conftest import T0
from tests.pipelines.models.few_jobs import QUICK, case, known


@pytest.fixture(scope="module", params=[1, pytest.param(5, marks=pytest.mark.slow), 120])
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


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.slow)])
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

"""Recorded jobs: run times predicted as of submission, by models of earlier months, which nothing later moves."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from features.tables import Jobs
from pipelines.errors import LakeError
from pipelines.models.baselines import history_forecasts
from pipelines.studies.recorded import WITHOUT_MODEL, local_months, recorded_jobs
from pipelines.studies.study import Context
from tests.pipelines.lake.canonical import canonical, job_row

BEGIN = datetime(2020, 7, 1, tzinfo=UTC)
HOUR_S = 3600.0


def jobs_of(count: int, *, days: float) -> pl.DataFrame:
    """Return jobs at even intervals from 1 July on; those of VC `slow` run ten times as long."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        submit = BEGIN + timedelta(days=days * i / count)
        vc = "slow" if rng.random() < 0.5 else "fast"
        run_s = float(round(rng.lognormal(6.0 if vc == "fast" else 8.3, 0.5)))
        times = {"submit_ts": submit, "start_ts": submit, "end_ts": submit + timedelta(seconds=run_s), "run_s": run_s}
        rows.append(job_row(i, vc=vc, req_gpus=1.0, instances=1, **times))
    return canonical(rows, Jobs)


def recorded(jobs: pl.DataFrame, least: int = 1) -> tuple[pl.DataFrame, str]:
    lake = SimpleNamespace(table=lambda *_: jobs.lazy(), manifest=lambda _: SimpleNamespace(zone="UTC"))
    context = Context(lake=lambda: lake, trace=lambda _: "toy")  # type: ignore[arg-type,return-value]  # a part of a lake
    frame, (note,) = recorded_jobs(context, "toy", seed=0, least=least)
    return frame, note


def test_months_begin_where_the_trace_says() -> None:
    jobs = canonical([job_row(0, submit_ts=datetime(2020, 7, 31, 20, tzinfo=UTC))], Jobs)

    assert local_months(jobs, "Asia/Shanghai") == [datetime(2020, 7, 31, 16, tzinfo=UTC)]
    assert local_months(jobs, "UTC") == [datetime(2020, 7, 1, tzinfo=UTC)]


def test_without_enough_ended_jobs_recent_ones_answer_and_too_few_jobs_are_refused() -> None:
    jobs = jobs_of(20, days=60)

    frame, note = recorded(jobs)

    recent = np.exp(history_forecasts(jobs, [WITHOUT_MODEL])[WITHOUT_MODEL].p50)
    assert frame["predicted"].to_list() == np.maximum(recent, 1.0).tolist()
    assert frame["run_s"].to_list() == jobs["run_s"].to_list()
    assert "20 of 20 jobs came before" in note
    with pytest.raises(LakeError, match="toy has 20 jobs that suit, expected 21; lower --jobs"):
        recorded(jobs, least=21)


@pytest.mark.slow
def test_models_answer_later_months_and_what_ends_later_moves_no_answer() -> None:
    jobs, month, moment = jobs_of(2500, days=60), datetime(2020, 8, 1, tzinfo=UTC), datetime(2020, 8, 10, tzinfo=UTC)
    ahead = pl.col("end_ts") >= moment
    changed = jobs.with_columns(
        run_s=pl.when(ahead).then(pl.col("run_s") * 7.0 + HOUR_S).otherwise("run_s"),
    ).with_columns(end_ts=pl.col("submit_ts") + pl.duration(microseconds=pl.col("run_s") * 1e6))

    told, otherwise = (recorded(each)[0] for each in (jobs, changed))

    assert told["submit_ts"].min() >= month
    log_run, log_predicted = (np.log(told[name].to_numpy()) for name in ("run_s", "predicted"))
    assert np.abs(log_predicted - log_run).mean() < 0.7 * np.abs(np.median(log_run) - log_run).mean()
    before = told["submit_ts"] < moment
    assert before.sum() > 300
    assert told["predicted"].filter(before).to_list() == otherwise["predicted"].filter(before).to_list()
    assert told["predicted"].filter(~before).to_list() != otherwise["predicted"].filter(~before).to_list()

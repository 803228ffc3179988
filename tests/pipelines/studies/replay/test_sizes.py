"""Sizes as of submission: which sources there are, who answers when, and that nothing later moves an answer."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.tables import Jobs
from pipelines.errors import BadUsage
from pipelines.studies.replay.sizes import LEAST_LEARNT, applicable_sources, local_months, sizes_of
from tests.pipelines.lake.canonical import canonical, job_row

BEGIN = datetime(2020, 7, 1, tzinfo=UTC)
HOUR_S = 3600.0


def jobs_of(count: int, *, days: float, seed: int = 0, **fields: object) -> pl.DataFrame:
    """Return jobs at even intervals from 1 July on; those of VC `slow` run ten times as long."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        submit = BEGIN + timedelta(days=days * i / count)
        vc = "slow" if rng.random() < 0.5 else "fast"
        run_s = float(round(rng.lognormal(6.0 if vc == "fast" else 8.3, 0.5)))
        times = {"submit_ts": submit, "start_ts": submit, "end_ts": submit + timedelta(seconds=run_s), "run_s": run_s}
        rows.append(job_row(i, vc=vc, **times) | fields)
    return canonical(rows, Jobs)


def test_sources_are_those_whose_key_the_trace_tells() -> None:
    without, with_users = jobs_of(5, days=1), jobs_of(5, days=1, user="u")

    assert applicable_sources(without)[0] == "predicted"
    assert applicable_sources(without)[-1] == "oracle"
    assert not {"user_mean", "user_median", "group_mean"} & set(applicable_sources(without))
    assert {"user_mean", "user_median"} <= set(applicable_sources(with_users))


def test_months_begin_where_the_trace_says() -> None:
    late = {"submit_ts": datetime(2020, 7, 31, 20, tzinfo=UTC)}
    jobs = canonical([job_row(0, **late)], Jobs)

    assert local_months(jobs, "Asia/Shanghai") == [datetime(2020, 7, 31, 16, tzinfo=UTC)]
    assert local_months(jobs, "UTC") == [datetime(2020, 7, 1, tzinfo=UTC)]


def test_the_oracle_knows_the_run_times_and_the_mean_what_had_ended() -> None:
    jobs = jobs_of(10, days=10, vc="one")

    sizes = sizes_of(jobs, jobs, ["oracle", "like_mean"], zone="UTC")

    run_s = jobs["run_s"].to_numpy()
    assert sizes.predicted_s["oracle"].tolist() == run_s.tolist()
    assert sizes.predicted_s["like_mean"][9] == pytest.approx(run_s[:9].mean())


def test_without_enough_ended_jobs_recent_ones_answer_and_the_note_says_so() -> None:
    jobs = jobs_of(20, days=60)

    sizes = sizes_of(jobs, jobs, ["predicted", "recent_20"], zone="UTC")

    assert sizes.predicted_s["predicted"].tolist() == sizes.predicted_s["recent_20"].tolist()
    assert f"no month had {LEAST_LEARNT} ended jobs" in sizes.notes[0]
    assert sizes.since == BEGIN


def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    jobs = jobs_of(5, days=1)

    with pytest.raises(BadUsage, match="no sizes user_mean for these jobs; there are predicted"):
        sizes_of(jobs, jobs, ["user_mean"], zone="UTC")


def test_p90_is_known_of_quantiles_exact_for_the_oracle_and_unknown_of_means() -> None:
    jobs = jobs_of(10, days=10, vc="one")

    sizes = sizes_of(jobs, jobs, ["recent_20", "like_mean", "oracle"], zone="UTC")

    assert (sizes.predicted_p90_s["recent_20"] >= 1.05 * sizes.predicted_s["recent_20"]).all()
    assert np.isnan(sizes.predicted_p90_s["like_mean"]).all()
    assert sizes.predicted_p90_s["oracle"].tolist() == jobs["run_s"].to_list()


def test_a_cut_before_which_too_few_jobs_ended_is_refused_with_a_cure() -> None:
    jobs, cut = jobs_of(20, days=60), BEGIN + timedelta(days=30)

    assert sizes_of(jobs, jobs, ["oracle"], zone="UTC", since=cut).since == cut
    with pytest.raises(BadUsage, match="found 10 jobs that ended before 2020-07-31, and a model needs 1000: give a la"):
        sizes_of(jobs, jobs, ["predicted"], zone="UTC", since=cut)


@pytest.mark.slow
def test_models_are_fixed_at_the_cut() -> None:
    jobs = jobs_of(4000, days=90)
    cut = BEGIN + timedelta(days=40)

    sizes = sizes_of(jobs, jobs, ["predicted"], zone="UTC", since=cut)
    monthly = sizes_of(jobs, jobs, ["predicted"], zone="UTC")

    before = (jobs["submit_ts"] < cut).to_numpy()
    one, other = sizes.predicted_s["predicted"], monthly.predicted_s["predicted"]
    assert sizes.since == cut
    assert "the last model fixed" in sizes.notes[0]
    assert one[before].tolist() == other[before].tolist()
    assert one[~before].tolist() != other[~before].tolist()


@pytest.mark.slow
def test_a_month_is_answered_by_a_model_of_what_had_ended_before_it() -> None:
    jobs = jobs_of(2500, days=60)
    month = datetime(2020, 8, 1, tzinfo=UTC)

    sizes = sizes_of(jobs, jobs, ["predicted", "recent_20", "global_median"], zone="UTC")

    later = (jobs["submit_ts"] >= month).to_numpy()
    log_run = np.log(jobs["run_s"].to_numpy())
    errors = {name: np.abs(np.log(answer) - log_run)[later].mean() for name, answer in sizes.predicted_s.items()}
    assert sizes.since == month
    assert errors["predicted"] < 0.7 * errors["global_median"]
    assert sizes.predicted_s["predicted"][~later].tolist() == sizes.predicted_s["recent_20"][~later].tolist()


@pytest.mark.slow
def test_what_ends_later_moves_no_answer() -> None:
    jobs = jobs_of(2500, days=60)
    moment = datetime(2020, 8, 10, tzinfo=UTC)
    ahead = pl.col("end_ts") >= moment
    changed = jobs.with_columns(
        run_s=pl.when(ahead).then(pl.col("run_s") * 7.0 + HOUR_S).otherwise("run_s"),
    ).with_columns(end_ts=pl.col("submit_ts") + pl.duration(microseconds=pl.col("run_s") * 1e6))
    names = ["predicted", "recent_20", "like_mean", "vc_gpus_median", "global_median"]

    told, otherwise = (sizes_of(each, each, names, zone="UTC").predicted_s for each in (jobs, changed))

    before = (jobs["submit_ts"] < moment).to_numpy()
    assert before.sum() > 1000
    for name in names:
        assert told[name][before].tolist() == otherwise[name][before].tolist()
        assert told[name][~before].tolist() != otherwise[name][~before].tolist()

"""`History`: windows against window SQL, and the tail against the whole."""

import math
from datetime import timedelta
from pathlib import Path

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal

from features.build import build
from features.errors import ContractError
from features.history import DEPTH, History
from features.keys import KEYS
from pipelines.lake.lake import Lake
from tests.examples import examples
from tests.features.job_tables import at, job, job_tables, real_jobs, table, usage_of

ORACLE = """
with job as (
    select *, req_gpus * instances as gpus,
        status in ('completed', 'failed', 'cancelled', 'timeout', 'node_fail', 'oom') as over
    from jobs left join usage using (trace, cluster, job_id, role)
),
seen as (
    select asked.n, h.*,
        row_number() over (
            partition by asked.n order by h.end_ts desc, h.submit_ts desc, h.cluster desc, h.job_id desc, h.role desc
        ) as back
    from asked join job h on {same_key} and h.over and h.end_ts < asked.submit_ts
),
windows as (
    select n, count(run_s) as count, max(run_s) filter (back = 1) as last1, quantile_cont(run_s, 0.5) as p50,
        quantile_cont(run_s, 0.9) as p90, stddev_pop(ln(1 + run_s)) as std,
        avg((status in ('failed', 'node_fail', 'oom'))::int) as failed
    from seen where back <= {last} group by n
),
measured as (
    select n, max(mem_max_gib) filter (back <= {last}) as mem_max from (
        select n, mem_max_gib, row_number() over (
            partition by n order by end_ts desc, submit_ts desc, cluster desc, job_id desc, role desc) as back
        from seen where instances_measured is not null
    ) group by n
),
loads as (
    select asked.n,
        count(*) filter (
            h.start_ts < asked.submit_ts and not coalesce(h.over and h.end_ts < asked.submit_ts, false)
        ) as running
    from asked join job h on {same_key} and h.submit_ts < asked.submit_ts group by asked.n
)
select case when {known} then coalesce(windows.count, 0) end::double as count, last1, p50, p90, std, failed, mem_max,
    case when {known} then coalesce(running, 0) end::double as running
from asked left join windows using (n) left join measured using (n) left join loads using (n) order by n
"""


def by_sql(jobs: pl.DataFrame, usage: pl.DataFrame, asked: pl.DataFrame, key: str, last: int) -> pl.DataFrame:
    """What the features of `asked` should be, by window SQL."""
    parts = [f'"{part}"' for part in KEYS[key]]
    sql = ORACLE.format(
        same_key=" and ".join(f"h.{p} = asked.{p}" for p in parts),
        known=" and ".join(f"asked.{p} is not null" for p in parts),
        last=last,
    )
    with duckdb.connect(config={"threads": 1}) as connection:
        numbered = asked.with_row_index("n").with_columns(gpus=pl.col("req_gpus") * pl.col("instances"))
        connection.register("asked", numbered.to_arrow())
        connection.register("jobs", jobs.to_arrow())
        connection.register("usage", usage.to_arrow())
        return pl.DataFrame(connection.sql(sql).to_arrow_table())


def by_features(history: History, asked: pl.DataFrame, key: str, last: int) -> pl.DataFrame:
    names = {
        "count": f"{key}_run_s_count_{last}",
        "last1": f"{key}_run_s_last1",
        "p50": f"{key}_run_s_p50_{last}",
        "p90": f"{key}_run_s_p90_{last}",
        "std": f"{key}_log_run_std_{last}",
        "failed": f"{key}_failed_mean_{last}",
        "mem_max": f"{key}_mem_max_gib_max_20",
        "running": f"{key}_running_jobs",
    }
    return build(asked, history, list(names.values())).rename({v: k for k, v in names.items()})


@pytest.mark.parametrize("key", ["user", "gpus", "vc_gpus", "all"])
@settings(max_examples=examples(25), deadline=None)
@given(jobs=job_tables())
def test_windows_equal_window_sql(key: str, jobs: pl.DataFrame) -> None:
    usage = usage_of(jobs)

    found = by_features(History.of(jobs, usage), jobs, key, 20)

    assert_frame_equal(found, by_sql(jobs, usage, jobs, key, 20), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.slow
def test_windows_over_a_real_trace_equal_window_sql(real: Lake) -> None:
    jobs = real_jobs(real, "philly-rebuilt")[:20_000]
    asked = jobs[500::977]

    found = by_features(History.of(jobs), asked, "gpus", 100)

    assert_frame_equal(found, by_sql(jobs, usage_of(jobs)[:0], asked, "gpus", 100), rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=examples(40), deadline=None)
@given(jobs=job_tables(max_size=60), later=job_tables(max_size=10))
def test_the_tail_answers_as_the_whole_for_later_jobs(jobs: pl.DataFrame, later: pl.DataFrame) -> None:
    whole = History.of(jobs, usage_of(jobs))
    gap = (jobs["submit_ts"].max() - at(0)) + timedelta(microseconds=1)  # type: ignore[operator]  # a datetime
    later = later.with_columns(submit_ts=pl.col("submit_ts") + gap)

    tail = History.from_tail(whole.tail())

    assert_frame_equal(build(later, tail, "usage"), build(later, whole, "usage"), check_exact=True)


@pytest.mark.slow
def test_the_tail_of_a_real_trace_answers_as_the_whole(real: Lake, tmp_path: Path) -> None:
    jobs = real_jobs(real, "philly-rebuilt")
    past, later = jobs[:60_000], jobs[60_000:].filter(pl.col("submit_ts") > jobs["submit_ts"][59_999])[::150]
    whole = History.of(past)

    whole.tail().write_parquet(tmp_path / "history.parquet")
    kept = pl.read_parquet(tmp_path / "history.parquet")

    assert_frame_equal(build(later, History.from_tail(kept), "usage"), build(later, whole, "usage"), check_exact=True)
    assert kept.height < 0.3 * past.height
    assert History.from_tail(kept).tail().equals(kept)


def test_the_tail_drops_what_no_later_job_can_see() -> None:
    depth = DEPTH["all"]
    rows = [
        job(n, submit_ts=at(n * 3600), start_ts=at(n * 3600), end_ts=at(n * 3600 + 60), run_s=60.0)
        for n in range(2 * depth)
    ]

    tail = History.of(table(rows)).tail()

    assert tail["job_id"].to_list() == [row["job_id"] for row in rows[-depth - 1 :]]


@pytest.mark.parametrize("status", ["running", "waiting"])
def test_a_job_that_has_not_ended_never_counts_as_ended(status: str) -> None:
    past = job(1, submit_ts=at(0), start_ts=at(0), end_ts=at(5), run_s=5.0, run_s_censored=True, status=status)
    asked = table([job(2, submit_ts=at(60))])

    found = build(asked, History.of(table([past])), ["all_run_s_count_20", "all_running_jobs"])

    assert found.row(0) == (0.0, 1.0)


def test_log_run_times_are_those_of_any_processor() -> None:
    run_s = [float(n * n) / 7 for n in range(2000)]
    rows = [job(n, submit_ts=at(0), start_ts=at(0), end_ts=at(each), run_s=each) for n, each in enumerate(run_s)]

    assert History.of(table(rows)).values["log_run"].tolist() == [math.log1p(each) for each in run_s]


def test_a_clamped_run_counts_as_ended() -> None:
    past = job(1, submit_ts=at(0), start_ts=at(0), end_ts=at(5), run_s=5.0, run_s_censored=True, status="timeout")

    found = build(table([job(2, submit_ts=at(60))]), History.of(table([past])), ["all_run_s_last1"])

    assert found.row(0) == (5.0,)


@pytest.mark.parametrize(("end", "seen"), [(59, 1.0), (60, 0.0), (61, 0.0)])
def test_only_what_ended_strictly_before_the_submission_is_seen(end: int, seen: float) -> None:
    past = job(1, submit_ts=at(0), start_ts=at(0), end_ts=at(end), run_s=float(end))

    found = build(table([job(2, submit_ts=at(60))]), History.of(table([past])), ["all_run_s_count_20"])

    assert found.row(0) == (seen,)


def test_a_burst_goes_on_while_gaps_stay_below_a_minute() -> None:
    times = [0, 59, 118, 118, 178, 200]
    jobs = table([job(n, submit_ts=at(t)) for n, t in enumerate(times)])

    found = build(jobs, History.of(jobs), ["all_burst60_before"])

    assert found["all_burst60_before"].to_list() == [0.0, 1.0, 2.0, 2.0, 0.0, 1.0]


def test_jobs_of_two_traces_are_refused() -> None:
    jobs = table([job(1, submit_ts=at(0)), job(2, trace="u", submit_ts=at(0))])

    with pytest.raises(ContractError, match="traces t, u"):
        History.of(jobs)


@pytest.mark.parametrize("column", ["user", "end_ts"])
def test_a_missing_column_is_named(column: str) -> None:
    with pytest.raises(ContractError, match=f"found no column {column}"):
        History.of(table([]).drop(column))

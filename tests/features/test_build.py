"""`build`: point-in-time, independent of row order and of the rows beside it, one way for one row or many."""

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features.build import build, with_requests
from features.errors import ContractError, UnknownFeature
from features.history import History
from features.sets import FEATURES
from pipelines.lake.lake import Lake
from tests.examples import examples
from tests.features.job_tables import (
    at,
    job,
    job_tables,
    real_jobs,
    table,
    truncated,
    usage_of,
)


def check_same(left: pl.DataFrame, right: pl.DataFrame) -> None:
    """Equal to the bit, nulls included."""
    assert_frame_equal(left, right, check_exact=True)


@settings(max_examples=examples(40), deadline=None)
@given(jobs=job_tables(), data=st.data())
def test_truncating_the_future_changes_no_feature(jobs: pl.DataFrame, data: st.DataObject) -> None:
    usage = usage_of(jobs)
    row = data.draw(st.integers(0, jobs.height - 1))
    asked = jobs[row : row + 1]
    past = truncated(jobs, asked["submit_ts"][0], (asked["job_id"][0], asked["role"][0]))
    known = past.filter(pl.col("end_ts").is_not_null()).select("job_id")

    whole = build(jobs, History.of(jobs, usage), "usage")[row : row + 1]
    then = build(asked, History.of(past, usage.join(known, on="job_id", how="semi")), "usage")

    check_same(then, whole)


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["philly-rebuilt", "helios"])
def test_truncating_the_future_of_a_real_trace_changes_no_feature(trace: str, real: Lake) -> None:
    jobs = real_jobs(real, trace)[:30_000]
    rows = random.Random(trace).sample(range(2_000, jobs.height), 4)  # chosen by the name: the same rows every time
    whole = build(jobs[rows], History.of(jobs), "usage")

    for place, row in enumerate(rows):
        asked = jobs[row : row + 1]
        past = truncated(jobs, asked["submit_ts"][0], (asked["job_id"][0], asked["role"][0]))
        check_same(build(asked, History.of(past), "usage"), whole[place : place + 1])


@settings(max_examples=examples(40), deadline=None)
@given(jobs=job_tables(), order=st.randoms(use_true_random=False))
def test_permuting_the_rows_permutes_the_features(jobs: pl.DataFrame, order: random.Random) -> None:
    usage = usage_of(jobs)
    places = list(range(jobs.height))
    order.shuffle(places)

    shuffled = build(jobs[places], History.of(jobs[places], usage.reverse()), "usage")

    check_same(shuffled, build(jobs, History.of(jobs, usage), "usage")[places])


@settings(max_examples=examples(20), deadline=None)
@given(jobs=job_tables())
def test_each_row_alone_is_its_row_of_the_batch(jobs: pl.DataFrame) -> None:
    history = History.of(jobs, usage_of(jobs))
    batch = build(jobs, history, "usage")

    for row in range(0, jobs.height, 5):
        check_same(build(jobs[row : row + 1], history, "usage"), batch[row : row + 1])


def test_an_unknown_user_has_no_history_and_a_new_one_an_empty_history() -> None:
    past = [
        job(n, user=user, submit_ts=at(0), start_ts=at(0), end_ts=at(9), run_s=9.0)
        for n, user in enumerate(["u", None])
    ]
    asked = table([job(8, user=None, submit_ts=at(60)), job(9, user="new", submit_ts=at(60))])

    found = build(asked, History.of(table(past)), ["user_run_s_count_20", "user_run_s_p50_20", "user_running_jobs"])

    assert found.rows() == [(None, None, None), (0.0, None, 0.0)]


@pytest.mark.parametrize(
    ("known", "level"),
    [
        ({"group": "g", "user": "u", "vc": "v", "req_gpus": 1.0}, "group_role"),
        ({"user": "u", "vc": "v", "req_gpus": 1.0}, "user_gpus"),
        ({"vc": "v", "req_gpus": 1.0}, "vc_gpus"),
        ({"req_gpus": 1.0}, "gpus"),
        ({}, "all"),
    ],
)
def test_like_is_the_most_specific_key_a_job_has(known: dict[str, object], level: str) -> None:
    others = [
        {"group": "g"},
        {"user": "u", "req_gpus": 1.0},
        {"vc": "v", "req_gpus": 1.0},
        {"req_gpus": 1.0},
        {"req_gpus": 2.0},
    ]
    past = [
        job(n, submit_ts=at(n), start_ts=at(n), end_ts=at(n + 2**n), run_s=float(2**n), **other)
        for n, other in enumerate(others)
    ]

    asked = table([job(9, submit_ts=at(1000), **known)])
    found = build(asked, History.of(table(past)), ["like_run_s_p50_20", f"{level}_run_s_p50_20"])

    assert found.row(0)[0] == found.row(0)[1] is not None


def test_a_job_of_another_trace_is_refused() -> None:
    history = History.of(table([job(1, submit_ts=at(0))]))

    with pytest.raises(ContractError, match="found the trace 'u'; expected 't'"):
        build(table([job(2, trace="u", submit_ts=at(1))]), history, ["user_run_s_p50_20"])


def test_a_missing_column_is_named_with_its_reader() -> None:
    jobs = table([job(1, submit_ts=at(0))]).drop("gpu_type", "req_mem_gib")

    with pytest.raises(ContractError, match=r"req_mem_gib \(read by req_mem_gib\), gpu_type \(read by gpu_type\)"):
        build(jobs, History.of(table([])), "request")


def test_an_unknown_name_lists_its_neighbours() -> None:
    with pytest.raises(UnknownFeature, match="user_run_s_p50_20"):
        build(table([]), History.of(table([])), ["user_run_p50_20"])


@pytest.mark.parametrize("size", [0, 1])
def test_an_empty_history_answers(size: int) -> None:
    found = build(table([job(1, submit_ts=at(0))][:size]), History.of(table([])), "usage")

    assert found.height == size
    assert found.schema == {name: FEATURES[name].dtype for name in found.columns}


@settings(max_examples=examples(30), deadline=None)
@given(jobs=job_tables(max_size=12), scale=st.sampled_from([0.5, 0.75, 1.0]))
def test_a_counterfactual_request_changes_the_request_and_nothing_else(jobs: pl.DataFrame, scale: float) -> None:
    history = History.of(jobs)
    frame = build(jobs, history, "usage")
    rows = np.repeat(np.arange(jobs.height), 2)
    asked = jobs.select("req_cpu_cores", "req_mem_gib", "req_gpus").to_numpy()[rows] * scale

    found = with_requests(frame, jobs, rows, asked)

    kept = [name for name in frame.columns if not FEATURES[name].from_request]
    check_same(found.select(kept), frame[rows].select(kept))
    smaller = jobs.with_columns(pl.col("req_cpu_cores", "req_mem_gib", "req_gpus") * scale)
    changed = [name for name in frame.columns if FEATURES[name].from_request]
    check_same(found.select(changed), build(smaller, history, changed)[rows])


@settings(max_examples=examples(30), deadline=None)
@given(jobs=job_tables(), others=job_tables())
def test_what_another_cluster_did_changes_no_feature(jobs: pl.DataFrame, others: pl.DataFrame) -> None:
    elsewhere = others.with_columns(cluster=pl.lit("elsewhere"), job_id=pl.col("job_id") + "x")

    beside = build(jobs, History.of(pl.concat([jobs, elsewhere])), "usage")

    check_same(beside, build(jobs, History.of(jobs), "usage"))

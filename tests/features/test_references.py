"""Forecasts from the history: by hand, with their fallbacks, and against looking at every other job."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from features.build import build
from features.history import History
from features.references import (
    BASE_FEATURES,
    HISTORY_FEATURES,
    HISTORY_FORECASTS,
    LIKE,
    PRIOR_LOG_S,
    REFERENCE_FEATURES,
    Referenced,
    build_referenced,
    made_relative,
    reference_log_s,
)
from tests.examples import examples
from tests.features.job_tables import at, job, job_tables, table

NAMES = ("similar_jobs", "same_gpus", "newest_jobs")
PRIOR = [3600.0, 36000.0]


def ended(number: int, run_s: float, **known: object) -> dict[str, object]:
    """A job that ended: those with greater numbers end later."""
    over = at(100 * number + 90)
    plain = {"group": "g", "role": "worker", "req_gpus": 1.0, "submit_ts": at(0), "start_ts": at(0), "end_ts": over}
    return job(number, run_s=run_s, **{**plain, **known})


def asked(past: list[dict[str, object]], **known: object) -> Referenced:
    plain = {"group": "g", "role": "worker", "req_gpus": 1.0, "submit_ts": at(10**6)}
    jobs = table([job(99_999, **{**plain, **known})])
    return build_referenced(jobs, History.of(table([*past])), ["req_gpus"], relative=True)


def quantiles(*run_s: float) -> list[float]:
    return [float(np.quantile(run_s, level)) for level in (0.5, 0.9)]


def seconds(found: Referenced) -> list[list[float]]:
    return np.exp(found.history_log_s[0]).tolist()


# Of group g with 1 GPU, of another group with 1 GPU, and of a third with 8.
PAST = [
    *(ended(n, run_s) for n, run_s in enumerate((100.0, 300.0, 200.0))),
    *(ended(n, run_s, group="h") for n, run_s in enumerate((5000.0, 7000.0), start=3)),
    ended(5, 90_000.0, group="i", req_gpus=8.0),
]
OF_G = (100.0, 300.0, 200.0)
OF_ONE_GPU = (*OF_G, 5000.0, 7000.0)
ALL = (*OF_ONE_GPU, 90_000.0)


@pytest.mark.parametrize(
    ("known", "expected", "evidence"),
    [
        ({}, [OF_G, OF_ONE_GPU, ALL], [3, 5, 6]),
        ({"group": "new"}, [OF_ONE_GPU, OF_ONE_GPU, ALL], [0, 5, 6]),
        ({"role": "ps"}, [OF_ONE_GPU, OF_ONE_GPU, ALL], [0, 5, 6]),
        ({"group": "new", "req_gpus": 4.0}, [ALL, ALL, ALL], [0, 0, 6]),
        ({"req_gpus": 4.0}, [OF_G, ALL, ALL], [3, 0, 6]),
        ({"req_gpus": None}, [OF_G, ALL, ALL], [3, 0, 6]),
        ({"req_gpus": 0.5, "instances": 2}, [OF_G, OF_ONE_GPU, ALL], [3, 5, 6]),  # GPUs of the whole gang
        ({"group": None}, [OF_ONE_GPU, OF_ONE_GPU, ALL], [5, 5, 6]),  # similar by the GPUs, where no group is known
    ],
)
def test_an_unknown_forecast_is_that_of_the_same_gpus_and_then_of_the_newest_jobs(
    known: dict[str, object], expected: list[tuple[float, ...]], evidence: list[int]
) -> None:
    found = asked(PAST, **known)

    assert seconds(found) == pytest.approx(np.array([quantiles(*each) for each in expected]))
    assert found.evidence.tolist() == [evidence]


@pytest.mark.parametrize(
    ("past", "known"),
    [
        ([], {}),
        (PAST, {"cluster": "another"}),
        (PAST, {"submit_ts": at(90)}),  # the first job ends at this instant
        ([job(1, group="g", role="worker", req_gpus=1.0, submit_ts=at(0), start_ts=at(0), status="running")], {}),
    ],
)
def test_where_no_earlier_job_has_ended_it_is_one_and_ten_hours(
    past: list[dict[str, object]], known: dict[str, object]
) -> None:
    found = asked(past, **known)

    assert seconds(found) == pytest.approx(np.array([PRIOR] * 3))
    assert found.history_log_s.tolist() == [[list(PRIOR_LOG_S)] * 3]
    assert found.evidence.tolist() == [[0, 0, 0]]


def test_each_forecast_is_of_its_number_of_newest_ended_jobs() -> None:
    run_s = [1000.0 + n for n in range(1100)]
    past = [ended(n, each) for n, each in enumerate(run_s)]

    found = asked(past)

    assert tuple(HISTORY_FORECASTS) == NAMES
    assert seconds(found) == pytest.approx(np.array([quantiles(*run_s[-last:]) for last in (1000, 300, 20)]))
    assert found.evidence.tolist() == [[1000, 300, 20]]


def test_features_that_are_not_relative_come_with_the_prior() -> None:
    jobs = table([job(99_999, group="g", role="worker", req_gpus=1.0, submit_ts=at(10**6))] * 2)

    found = build_referenced(jobs, History.of(table(PAST)), ["req_gpus"], relative=False)

    assert found.history_log_s.tolist() == [[list(PRIOR_LOG_S)] * 3] * 2
    assert found.evidence.tolist() == [[0, 0, 0]] * 2
    assert found.reference_log_s.tolist() == [[0.0, 0.0]] * 2


def similar(row: dict, other: dict) -> bool:
    """Return whether `other` is similar to `row`, by the first key whose parts are all known for `row`."""
    for parts in (("group", "role"), ("user", "gpus"), ("vc", "gpus"), ("gpus",), ()):
        if all(row[part] is not None for part in parts):
            return all(row[part] == other[part] for part in parts)
    raise AssertionError("the last key has no parts")


def naive(row: dict, others: list[dict]) -> list[list[float] | None]:
    """Return p50 and p90 in seconds of the three forecasts; None where no such job has ended."""
    before = [
        other
        for other in others
        if other["run_s"] is not None
        and other["end_ts"] is not None
        and other["status"] not in ("running", "waiting")
        and other["end_ts"] < row["submit_ts"]
        and other["cluster"] == row["cluster"]
    ]
    of_gpus = [each for each in before if row["gpus"] is not None and each["gpus"] == row["gpus"]]
    # The tables hold at most forty jobs, so only the window of 20 may be shorter than the history.
    newest = sorted(before, key=lambda each: (each["end_ts"], each["submit_ts"], each["job_id"], each["role"]))[-20:]
    chosen = [[each for each in before if similar(row, each)], of_gpus, newest]
    return [quantiles(*(each["run_s"] for each in jobs)) if jobs else None for jobs in chosen]


@settings(max_examples=examples(24), deadline=None)
@given(jobs=job_tables())
def test_forecasts_are_those_of_looking_at_every_other_job(jobs: pl.DataFrame) -> None:
    rows = jobs.with_columns(gpus=pl.col("req_gpus") * pl.col("instances")).to_dicts()

    found = build_referenced(jobs, History.of(jobs), ["req_gpus"], relative=True)

    for row, of_row, evidence in zip(rows, found.history_log_s, found.evidence.tolist(), strict=True):
        expected = naive(row, rows)
        assert [count > 0 for count in evidence] == [each is not None for each in expected]
        for place in range(len(NAMES)):
            first = next((each for each in expected[place:] if each is not None), PRIOR)
            assert of_row[place] == pytest.approx(np.log(np.maximum(first, 1.0)))
    assert set(HISTORY_FEATURES) <= set(BASE_FEATURES)


@pytest.mark.parametrize(
    ("similar_s", "all_s", "seconds"),
    [
        (100.0, 7.0, [100.0, 100.0]),
        (None, 7.0, [7.0, 7.0]),
        (None, None, [3600.0, 36_000.0]),
        (0.2, 7.0, [1.0, 1.0]),
    ],
)
def test_the_reference_is_of_similar_jobs_else_of_all_else_one_and_ten_hours(
    similar_s: float | None, all_s: float | None, seconds: list[float]
) -> None:
    values = {name: [similar_s if name.startswith("like") else all_s] for name in REFERENCE_FEATURES}
    frame = pl.DataFrame(values, schema=dict.fromkeys(values, pl.Float64))

    assert np.exp(reference_log_s(frame)) == pytest.approx(np.array([seconds]))
    if similar_s == 100.0:
        longer = frame.with_columns(pl.lit(10_000.0).alias(LIKE["p90"][0]))
        assert reference_log_s(longer)[0] == pytest.approx([np.log(1e2), (np.log(1e4) + 2 * np.log(1e2)) / 3])


def test_run_times_become_relative_and_nothing_else_does() -> None:
    jobs = table([ended(n, 100.0 + n, user="u", submit_ts=at(200 * n)) for n in range(30)])
    frame = build(jobs, History.of(jobs), "usage")
    against = np.linspace(1.0, 9.0, jobs.height)

    seen = made_relative(frame, against)

    changed = {c for c in frame.columns if not frame[c].equals(seen[c])}
    assert seen.schema == frame.schema
    assert {"like_run_s_p50_20", "user_run_s_p90_100", "like_log_run_mean_20", "like_newest1_so_far_s"} <= changed
    assert not changed & {"req_gpus", "user_failed_mean_20", "like_since_end_s", "group_log_run_std_20", "role"}
    last = frame["group_run_s_p50_20"].to_numpy()
    assert seen["group_run_s_p50_20"].to_numpy() == pytest.approx(np.log(np.maximum(last, 1)) - against, nan_ok=True)

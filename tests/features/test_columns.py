"""Single features, worked by hand or by plain Python."""

import math

import polars as pl
import pytest
from hypothesis import given, settings

from features.build import build
from features.columns.feature import Lookback
from features.columns.newest import BURST_GAPS_S, NEWEST_COUNTS, STATS
from features.columns.recency import extremes_before
from features.history import SUBMITTED_DEPTH, USE_COLUMNS, History
from tests.examples import examples
from tests.features.job_tables import at, job, job_tables, table

EMPTY = History.of(table([]))


def test_requests_are_per_instance_and_of_the_gang() -> None:
    jobs = table([job(1, submit_ts=at(0), instances=4, req_gpus=0.5, req_cpu_cores=6.0, req_mem_gib=29.0)])
    names = [
        "req_gpus",
        "total_gpus",
        "total_cpu_cores",
        "cpu_cores_per_gpu",
        "mem_gib_per_gpu",
        "mem_gib_per_cpu_core",
    ]

    assert build(jobs, EMPTY, names).row(0) == (0.5, 2.0, 24.0, 12.0, 58.0, 29 / 6)


@pytest.mark.parametrize("gpus", [0.0, None])
def test_a_ratio_to_nothing_is_unknown(gpus: float | None) -> None:
    jobs = table([job(1, submit_ts=at(0), req_gpus=gpus, req_cpu_cores=6.0)])

    assert build(jobs, EMPTY, ["cpu_cores_per_gpu"]).row(0) == (None,)


def test_running_jobs_count_as_at_least_so_long() -> None:
    # At 1000 s: run 100 (ended), 300 so far (running), 400 (ended), 900 so far (running).
    # Survival: 3/4 after 100, then 3/4 * 1/2 after 400.
    past = [
        job(1, submit_ts=at(0), start_ts=at(0), end_ts=at(100), run_s=100.0),
        job(2, submit_ts=at(100), start_ts=at(100), end_ts=at(9000), run_s=8900.0),
        job(3, submit_ts=at(300), start_ts=at(300), end_ts=at(700), run_s=400.0),
        job(4, submit_ts=at(700), start_ts=at(700), status="running"),
        job(5, submit_ts=at(900), status="waiting"),
    ]
    names = [f"all_newest_run_s_km{p}_20" for p in (25, 50, 75, 90)]

    found = build(table([job(9, submit_ts=at(1000))]), History.of(table(past)), names)

    assert found.row(0) == (100.0, 400.0, 900.0, 900.0)


@pytest.mark.parametrize(
    ("asked", "usual"),
    [
        ([4.0, 4.0], None),
        ([4.0, 64.0, 5.0, 4.0], 4.0),
        ([16.0, 4.0, 16.0, 16.0], 16.0),
        ([4.0, None, 5.0, 6.0], 4.0),
        ([64.0, 64.0, 64.0, *[4.0] * 100], 4.0),  # too long ago
    ],
)
def test_usual_is_what_three_measured_runs_of_the_group_asked_for(
    asked: list[float | None], usual: float | None
) -> None:
    whose = {"group": "g", "role": "w", "cluster": "c"}
    past = table(
        [
            job(i, **whose, submit_ts=at(i), start_ts=at(i), end_ts=at(i + 0.5), run_s=0.5, req_mem_gib=gib)
            for i, gib in enumerate(asked)
        ]
    )
    use = past.select("trace", "cluster", "job_id", "role", *(pl.lit(1.0).alias(name) for name in USE_COLUMNS))
    asking = table([job(999, **whose, submit_ts=at(1000))])

    found = extremes_before(Lookback.of(asking, History.of(past, use)))

    assert found[0].tolist() == pytest.approx([1.0, 1.0, math.nan, usual or math.nan, math.nan], nan_ok=True)


def test_running_jobs_have_been_running_for_so_long() -> None:
    past = [
        job(1, submit_ts=at(0), start_ts=at(0), end_ts=at(50), run_s=50.0),
        job(2, submit_ts=at(0), start_ts=at(40), status="running", req_gpus=0.25, instances=2),
        job(3, submit_ts=at(0), start_ts=at(60), end_ts=at(100), run_s=40.0, req_gpus=8.0),
    ]

    names = ["all_running_jobs", "all_running_mean_s", "all_since_end_s"]
    found = build(table([job(9, submit_ts=at(100))]), History.of(table(past)), names)

    assert found.row(0) == (2.0, 50.0, 50.0)


def plainly(jobs: pl.DataFrame, row: int) -> dict[str, float | None]:
    """The newest-submission features of one job under the key `all`, in plain Python."""
    asked = jobs.row(row, named=True)
    now = asked["submit_ts"]
    known = [r for r in jobs.iter_rows(named=True) if r["cluster"] == asked["cluster"] and r["submit_ts"] < now]
    known = sorted(known, key=lambda r: (r["submit_ts"], r["job_id"], r["role"]), reverse=True)[:SUBMITTED_DEPTH]
    looked = []
    for r in known:
        started = r["start_ts"] is not None and r["start_ts"] < now
        over = r["status"] not in ("running", "waiting")
        ended = started and over and r["end_ts"] < now
        run = ((r["end_ts"] if ended else now) - r["start_ts"]).total_seconds() if started else None
        looked.append(((now - r["submit_ts"]).total_seconds(), run, ended))
    ended_at = [back for back, (_, _, ended) in enumerate(looked) if ended]
    answer: dict[str, float | None] = {
        **{f"all_newest{k}_so_far_s": looked[k - 1][1] if len(looked) >= k else None for k in range(1, 6)},
        **{f"all_newest{k}_ended": float(looked[k - 1][2]) if len(looked) >= k else None for k in (1, 2, 3)},
        **{f"all_newest{k}_since_s": looked[k - 1][0] if len(looked) >= k else None for k in (1, 2, 5, 20)},
        **{f"all_newest_run_s_km{p}_{n}": km(looked[:n], p) for n in NEWEST_COUNTS for p in (25, 50, 75, 90)},
        "all_newest_ended_frac": sum(e for _, _, e in looked[:20]) / len(looked[:20]) if looked else None,
        "all_newest_ended_run_s": looked[ended_at[0]][1] if ended_at else None,
        "all_newest_ended_back": float(ended_at[0]) if ended_at else None,
    }
    for gap in BURST_GAPS_S:
        size, since = 0, 0.0
        while size < len(looked) and looked[size][0] - since < gap:
            since = looked[size][0]
            size += 1
        burst = looked[:size]
        answer[f"all_burst{gap}_before"] = float(size)
        answer[f"all_burst{gap}_age_s"] = since
        answer[f"all_burst{gap}_ended_frac"] = sum(e for _, _, e in burst) / size if size else None
        answer |= {f"all_burst{gap}_run_s_km{p}": km(burst, p) for p in (50, 90)}
    return answer


def km(looked: list[tuple[float, float | None, bool]], percent: int) -> float | None:
    """A quantile of the Kaplan-Meier curve of the run times so far."""
    surviving = 1.0
    ranked = sorted(((run, ended) for _, run, ended in looked if run is not None), key=lambda one: (one[0], not one[1]))
    for place, (run, ended) in enumerate(ranked):
        surviving *= 1 - ended / (len(ranked) - place)
        if surviving <= 1 - percent / 100 + 1e-9:
            return run
    return ranked[-1][0] if ranked else None


@settings(max_examples=examples(30), deadline=None)
@given(jobs=job_tables(max_size=90))
def test_the_newest_submissions_are_told_as_plain_python_tells_them(jobs: pl.DataFrame) -> None:
    expected = [plainly(jobs, row) for row in range(jobs.height)]
    assert {f"all_{stat}" for stat in STATS} == set(expected[0])

    found = build(jobs, History.of(jobs), list(expected[0]))

    for row, plain in enumerate(expected):
        assert found.row(row, named=True) == pytest.approx(plain, nan_ok=False)

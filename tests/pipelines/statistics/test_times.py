"""Run times, waits, completion times, arrivals and the period, of jobs worked by hand."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.errors import BadUsage, LakeError
from pipelines.statistics.times import arrivals_by_hour, arrivals_by_weekday, jct, period, queueing_delay, run_time
from tests.pipelines.statistics.lakes import job, make_lake, ran


def test_run_times_by_hand(tmp_path: Path) -> None:
    jobs = [ran(0, 100.0, req_gpus=1.0), ran(1, 200.0), ran(2, 300.0), ran(3, 7200.0, req_gpus=2.0), job(4)]
    [row] = run_time(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert row["jobs"] == 4
    assert row["mean_s"] == 1950.0
    assert (row["min_s"], row["p50_s"], row["max_s"]) == (100.0, 250.0, 7200.0)
    assert row["p25_s"] == 175.0
    assert row["p90_s"] == pytest.approx(300 + 0.7 * 6900)
    assert row["over_1h_share"] == 0.25
    assert row["gpu_hours_over_1h_share"] == pytest.approx(4.0 / (4.0 + 100 / 3600))
    assert row["gpu_hours_over_24h_share"] == 0.0
    assert row["censored_share"] == 0.0


def test_a_lower_bound_counts_as_it_stands_and_is_told(tmp_path: Path) -> None:
    jobs = [ran(0, 100.0), job(1, run_s=300.0, run_s_censored=True, status="running")]
    [row] = run_time(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["mean_s"], row["censored_share"]) == (200.0, 0.5)


def test_gpu_hours_weigh_all_instances_of_a_gang(tmp_path: Path) -> None:
    jobs = [ran(0, 7200.0, req_gpus=0.5, instances=6), ran(1, 3600.0, req_gpus=2.0)]
    [row] = run_time(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert row["gpu_hours_over_1h_share"] == pytest.approx(6 / 8)


def test_no_gpu_hours_give_no_share(tmp_path: Path) -> None:
    [row] = run_time(make_lake(tmp_path, {"jobs": [ran(0, 7200.0)]}), "toy").to_dicts()
    assert row["gpu_hours_over_1h_share"] is None
    assert row["over_1h_share"] == 1.0


def test_an_unknown_wait_is_not_none(tmp_path: Path) -> None:
    jobs = [ran(0, 10.0, queue_s=0.0), ran(1, 10.0, queue_s=30.0), ran(2, 10.0)]
    [row] = queueing_delay(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["jobs"], row["mean_s"], row["p50_s"]) == (2, 15.0, 15.0)
    assert "censored_share" not in row


def test_jct_is_from_submission_to_end_where_the_wait_is_known(tmp_path: Path) -> None:
    jobs = [ran(0, 10.0, queue_s=30.0), ran(1, 999.0), job(2, queue_s=5.0)]
    [row] = jct(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["jobs"], row["mean_s"]) == (1, 40.0)


def test_split_by_several_with_nulls_last(tmp_path: Path) -> None:
    jobs = [
        ran(0, 1.0, user="b", req_gpus=1.0),
        ran(1, 2.0, user="a", req_gpus=0.0),
        ran(2, 3.0, req_gpus=4.0),
        ran(3, 4.0, user="a"),
    ]
    rows = run_time(make_lake(tmp_path, {"jobs": jobs}), "toy", by=("user", "device"))
    assert rows.select("user", "device", "mean_s").rows() == [
        ("a", "cpu", 2.0),
        ("a", None, 4.0),
        ("b", "gpu", 1.0),
        (None, "gpu", 3.0),
    ]


def test_sizes_stand_in_their_order(tmp_path: Path) -> None:
    gpus = [100.0, 16.0, 0.5, 2.0, 0.0, 1.0, 4.0, 8.0, 17.0]
    jobs = [ran(i, 1.0, req_gpus=g) for i, g in enumerate(gpus)]
    rows = run_time(make_lake(tmp_path, {"jobs": jobs}), "toy", by="size")
    assert rows["size"].to_list() == ["0", "<1", "1", "2", "3-4", "5-8", "9-16", "17-64", "65+"]


def test_one_cluster_of_several(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": [ran(0, 10.0), ran(1, 20.0, cluster="d")]})
    assert run_time(lake, "toy", cluster="d")["mean_s"].to_list() == [20.0]
    assert run_time(lake, "toy", by="cluster")["mean_s"].to_list() == [10.0, 20.0]


def test_what_cannot_be_meant_is_said(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": [ran(0, 10.0)]})
    with pytest.raises(BadUsage, match="cannot split by 'colour'; expected one of cluster, vc"):
        run_time(lake, "toy", by="colour")
    with pytest.raises(LakeError, match="no trace 'nope'"):
        run_time(lake, "nope")
    with pytest.raises(LakeError, match="no cluster 'x'"):
        run_time(lake, "toy", cluster="x")


def test_hours_are_local_and_empty_dates_count(tmp_path: Path) -> None:
    # 08:00, 08:00 the day after, 08:00 and 09:00 three days after, in Shanghai.
    lake = make_lake(tmp_path, {"jobs": [job(0), job(24), job(72), job(73)]}, trace="ours", zone="Asia/Shanghai")
    rows = arrivals_by_hour(lake, "ours")
    assert rows["hour"].to_list() == list(range(24))
    assert rows["zone"].unique().to_list() == ["Asia/Shanghai"]
    [eight] = rows.filter(hour=8).to_dicts()
    assert (eight["jobs"], eight["share"], eight["mean_per_day"], eight["median_per_day"]) == (3, 0.75, 0.75, 1.0)
    [nine] = rows.filter(hour=9).to_dicts()
    assert (nine["jobs"], nine["median_per_day"], nine["days"]) == (1, 0.0, 4)
    assert rows["jobs"].sum() == 4


@pytest.mark.parametrize(("zone", "hour"), [("Asia/Shanghai", 8), ("America/Los_Angeles", 17), ("UTC", 0)])
def test_the_zone_is_the_manifests_whatever_the_trace_is_called(tmp_path: Path, zone: str, hour: int) -> None:
    with make_lake(tmp_path, {"jobs": [job(0)]}, trace="pai-x", source="generic", zone=zone) as lake:
        rows = arrivals_by_hour(lake, "pai-x")
        [[local]] = lake.connect().execute("SELECT hour(submit_local) FROM jobs_with_usage").fetchall()
    assert rows.filter(jobs=1)["hour"].to_list() == [hour]
    assert local == hour


def test_weekdays_count_their_own_dates(tmp_path: Path) -> None:
    # Two Wednesdays (3), of which one has two jobs, and the Thursday after the first.
    lake = make_lake(tmp_path, {"jobs": [job(0), job(1), job(24), job(24 * 7)]})
    rows = arrivals_by_weekday(lake, "toy")
    assert rows["weekday"].to_list() == [1, 2, 3, 4, 5, 6, 7]
    assert rows["jobs"].to_list() == [0, 0, 3, 1, 0, 0, 0]
    assert rows["days"].to_list() == [1, 1, 2, 1, 1, 1, 1]
    assert rows.filter(weekday=3)["mean_per_day"].to_list() == [1.5]


def test_a_part_has_every_hour_and_its_own_shares(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": [job(0, user="a"), job(1, user="a"), job(2)]})
    rows = arrivals_by_hour(lake, "toy", by="user")
    assert rows.height == 48
    assert rows.filter(user="a", hour=1)["share"].to_list() == [0.5]
    assert rows.filter(rows["user"].is_null(), hour=2)["share"].to_list() == [1.0]


def test_the_period_counts_jobs_tasks_and_names(tmp_path: Path) -> None:
    jobs = [
        job(0, user="a", group="g"),
        job(0, role="ps", user="a"),
        job(36, user="b", cluster="d"),
        job(12, user="a", cluster="d"),
    ]
    [row] = period(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["tasks"], row["jobs"], row["days"]) == (4, 3, 1.5)
    assert (row["first_submit"], row["last_submit"]) == ("2020-07-01 00:00:00", "2020-07-02 12:00:00")
    assert (row["users"], row["groups"], row["vcs"]) == (3, 1, None)


def test_submissions_of_a_trace_that_hides_its_dates_are_days_of_the_trace(tmp_path: Path) -> None:
    hidden = [datetime(1970, 1, day, hour, tzinfo=UTC) for day, hour in ((1, 0), (12, 23))]
    jobs = [job(hour) | {"submit_ts": at} for hour, at in enumerate(hidden)]
    [row] = period(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["first_submit"], row["last_submit"]) == ("day 1, 00:00:00", "day 12, 23:00:00")

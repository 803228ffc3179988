"""Arrivals by local hour and weekday, and the period, worked by hand."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.statistics.times import arrivals_by_hour, arrivals_by_weekday, period
from tests.pipelines.statistics.lakes import job, make_lake


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

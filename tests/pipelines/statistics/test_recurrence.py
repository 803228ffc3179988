"""Groups that recur and users that dominate, worked by hand."""

from pathlib import Path

import pytest

from pipelines.statistics.outcomes import group_recurrence, user_concentration
from tests.pipelines.statistics.lakes import job, make_lake, ran


def test_a_group_counts_jobs_not_tasks(tmp_path: Path) -> None:
    jobs = [
        *(job(i, group="often") for i in range(5)),
        job(0, role="ps", group="often"),
        job(5, group="once"),
        job(6, group="once", cluster="d"),
        job(7),
    ]
    [row] = group_recurrence(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["groups"], row["jobs"], row["max_jobs"], row["p50_jobs"]) == (3, 7, 5, 1.0)
    assert row["mean_jobs"] == pytest.approx(7 / 3)
    assert row["recurring_groups_share"] == pytest.approx(1 / 3)
    assert row["recurring_jobs_share"] == row["jobs_in_groups_of_5_share"] == pytest.approx(5 / 7)
    assert row["again_share"] == pytest.approx(4 / 7)


def test_groups_within_a_part(tmp_path: Path) -> None:
    jobs = [job(0, group="g", user="a"), job(1, group="g", user="a"), job(2, group="g", user="b")]
    rows = group_recurrence(make_lake(tmp_path, {"jobs": jobs}), "toy", by="user")
    assert rows.select("user", "groups", "again_share").rows() == [("a", 1, 0.5), ("b", 1, 0.0)]


def test_the_top_is_by_tasks_and_by_gpu_hours_apart(tmp_path: Path) -> None:
    many = [ran(i, 3600.0, user="many") for i in range(6)]
    hungry = [ran(10, 3600.0, user="hungry", req_gpus=8.0)]
    others = [ran(20 + i, 3600.0, user=f"u{i}", req_gpus=1.0) for i in range(2)]
    lake = make_lake(tmp_path, {"jobs": [*many, *hungry, *others, ran(30, 1.0)]})
    [row] = user_concentration(lake, "toy").to_dicts()
    assert (row["users"], row["tasks"], row["mean_tasks"], row["p50_tasks"], row["max_tasks"]) == (4, 9, 2.25, 1.0, 6)
    assert row["first_tasks_share"] == row["top_tasks_share"] == pytest.approx(6 / 9)
    assert row["gpu_hours"] == 10.0
    assert row["first_gpu_hours_share"] == row["top_gpu_hours_share"] == 0.8


def test_five_percent_of_forty_users_are_two(tmp_path: Path) -> None:
    jobs = [ran(i, 1.0, user=f"u{i:02d}") for i in range(40)] + [ran(50, 1.0, user="u07"), ran(51, 1.0, user="u08")]
    [row] = user_concentration(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["users"], row["first_tasks_share"], row["top_tasks_share"]) == (40, 2 / 42, 4 / 42)


def test_the_same_name_in_two_clusters_is_two_users(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": [job(0, user="a"), job(1, user="a", cluster="d")]})
    assert user_concentration(lake, "toy")["users"].to_list() == [2]
    assert user_concentration(lake, "toy", by="cluster")["users"].to_list() == [1, 1]

"""GPU-hours by status, sizes and fragmentation of requests, groups and users, worked by hand."""

from pathlib import Path

import pytest

from pipelines.statistics.claims import request_fragmentation, sizes
from pipelines.statistics.outcomes import gpu_hours_by_status, group_recurrence, status_counts, user_concentration
from tests.pipelines.statistics.lakes import job, make_lake, ran


def test_shares_are_of_the_part(tmp_path: Path) -> None:
    jobs = [ran(0, 1.0, user="a"), ran(1, 1.0, user="b"), ran(2, 1.0, user="b", status="failed")]
    rows = status_counts(make_lake(tmp_path, {"jobs": jobs}), "toy", by="user").rows()
    assert rows == [("a", "completed", 1, 1.0), ("b", "completed", 1, 0.5), ("b", "failed", 1, 0.5)]


def test_gpu_hours_by_status(tmp_path: Path) -> None:
    jobs = [
        ran(0, 3600.0, req_gpus=2.0, instances=3),
        ran(1, 7200.0, req_gpus=1.0, status="failed"),
        ran(2, 3600.0, req_gpus=0.0),
        ran(3, 3600.0),
        job(4, req_gpus=1.0, status="waiting"),
    ]
    rows = gpu_hours_by_status(make_lake(tmp_path, {"jobs": jobs}), "toy").rows()
    assert rows == [
        ("completed", 1, pytest.approx(1 / 3), 6.0, 0.75),
        ("failed", 1, pytest.approx(1 / 3), 2.0, 0.25),
        ("waiting", 1, pytest.approx(1 / 3), None, None),
    ]


def test_sizes_are_of_gpu_jobs_over_all_instances(tmp_path: Path) -> None:
    jobs = [
        ran(0, 3600.0, req_gpus=0.5),
        ran(1, 3600.0, req_gpus=0.5, instances=2),
        ran(2, 3600.0, req_gpus=4.0),
        ran(3, 3600.0, req_gpus=0.0),
        ran(4, 3600.0),
    ]
    [row] = sizes(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (row["jobs"], row["cpu_jobs"], row["gpu_jobs"]) == (4, 1, 3)
    assert row["mean_gpus"] == pytest.approx(5.5 / 3)
    assert (row["p50_gpus"], row["max_gpus"]) == (1.0, 4.0)
    assert (row["under_one_gpu_share"], row["one_gpu_share"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert row["one_instance_share"] == pytest.approx(2 / 3)
    assert (row["mean_gpu_hours"], row["max_gpu_hours"]) == (pytest.approx(5.5 / 3), 4.0)


def test_only_cpu_jobs_have_no_sizes(tmp_path: Path) -> None:
    [row] = sizes(make_lake(tmp_path, {"jobs": [ran(0, 1.0, req_gpus=0.0)]}), "toy").to_dicts()
    assert (row["cpu_jobs"], row["gpu_jobs"], row["mean_gpus"], row["one_gpu_share"]) == (1, 0, None, None)


@pytest.mark.parametrize(
    ("req_gpus", "request_class", "left_over"),
    [
        (0.1, "<0.25", 0.0),
        (0.3, "0.25-0.5", 0.1),
        (0.25, "0.25-0.5", 0.0),
        (0.6, "0.5-1", 0.4),
        (1.0, "1", 0.0),
        (1.5, ">1", 0.25),
        (8.0, ">1", 0.0),
    ],
)
def test_what_a_request_leaves_of_its_gpus(
    tmp_path: Path, req_gpus: float, request_class: str, left_over: float
) -> None:
    lake = make_lake(tmp_path, {"jobs": [ran(0, 3600.0, req_gpus=req_gpus)]})
    [row] = request_fragmentation(lake, "toy").to_dicts()
    assert row["request_class"] == request_class
    assert row["left_over_frac"] == pytest.approx(left_over, abs=1e-6)


def test_fragmentation_counts_instances_and_different_requests(tmp_path: Path) -> None:
    jobs = [
        ran(0, 3600.0, req_gpus=0.5, instances=3, req_cpu_cores=6.0),
        ran(1, 3600.0, req_gpus=0.7, req_cpu_cores=6.0),
        ran(2, 3600.0, req_gpus=0.5, req_cpu_cores=6.0),
        ran(3, 3600.0, req_gpus=2.0),
        ran(4, 3600.0, req_gpus=0.0),
    ]
    half, more = request_fragmentation(make_lake(tmp_path, {"jobs": jobs}), "toy").to_dicts()
    assert (half["tasks"], half["share"], half["total_instances"], half["requests"]) == (3, 0.75, 5, 2)
    assert half["gpu_hours"] == pytest.approx(2.7)
    assert half["gpu_hours_share"] == pytest.approx(2.7 / 4.7)
    assert half["left_over_frac"] == pytest.approx(0.3 / 5)
    assert (more["request_class"], more["tasks"]) == (">1", 1)


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

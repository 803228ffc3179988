"""What the PAI tables become: units, waits, and use folded from GPUs to workers to tasks."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake

Published = dict[str, Any]


@pytest.fixture(scope="module")
def lake(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("pai")
    ingest("pai", published["pai"].write(folder / "from"), folder / "lake")
    return Lake(folder / "lake")


def _job(lake: Lake, job_id: str, role: str) -> dict[str, Any]:
    return lake.table("jobs").filter(job_id=job_id, role=role).collect().row(0, named=True)


def test_a_task_becomes_a_job_with_units_per_instance(lake: Lake) -> None:
    job = _job(lake, "j1", "worker")

    assert job["submit_ts"] == datetime.fromtimestamp(100000, UTC)
    assert job["start_ts"] == datetime.fromtimestamp(100020, UTC)  # the earliest of its two instances
    assert (job["queue_s"], job["run_s"], job["run_s_censored"]) == (20.0, 580.0, False)
    assert (job["req_cpu_cores"], job["req_mem_gib"], job["req_gpus"]) == (6.0, 29.296875, 0.5)
    assert (job["status"], job["instances"], job["gpu_type"]) == ("completed", 2, "T4")
    assert (job["user"], job["group"], job["workload"], job["task_type"]) == ("u1", "g1", "ctr", "ctr")


def test_a_running_task_is_censored_at_the_latest_time_known(lake: Lake) -> None:
    job = _job(lake, "j2", "tensorflow")

    assert (job["status"], job["end_ts"], job["queue_s"]) == ("running", None, None)
    assert (job["run_s"], job["run_s_censored"]) == (500.0, True)
    assert (job["workload"], job["task_type"], job["req_mem_gib"]) == (None, "other", None)


def test_a_waiting_task_has_no_start(lake: Lake) -> None:
    job = _job(lake, "j3", "worker")

    assert (job["status"], job["start_ts"], job["run_s"], job["run_s_censored"]) == ("waiting", None, None, False)


def test_instances_that_repeat_their_tasks_time_leave_the_wait_unknown(published: Published, tmp_path: Path) -> None:
    folder = published["pai"].write(tmp_path / "from")
    row = "j1,{},n,{},i1,Terminated,100000.0,100590.0,m1\n"
    (folder / "pai_instance_table.csv").write_text(row.format("worker", "w1") + row.format("ps", "w2"))

    manifest = ingest("pai", folder, tmp_path / "lake").manifest

    assert Lake(tmp_path / "lake").table("jobs").collect()["queue_s"].null_count() == 4
    assert any("queue_s is null" in w for w in manifest.warnings)


def test_use_is_taken_once_per_worker_summed_over_gpus_and_averaged_over_workers(lake: Lake) -> None:
    use = lake.table("usage").filter(role="worker").collect().row(0, named=True)

    assert use["used_cpu_cores"] == pytest.approx((1.0 + 3.0) / 2)
    assert use["used_gpus"] == pytest.approx(((0.2 + 0.3) + 0.1) / 2)
    assert (use["mem_avg_gib"], use["mem_max_gib"]) == (3.0, 9.0)
    assert (use["gpu_mem_avg_gib"], use["gpu_mem_max_gib"]) == (pytest.approx((2.5 + 0.5) / 2), 4.5)
    assert (use["net_read_bytes_per_s"], use["net_write_bytes_per_s"]) == (2000.0, 20.0)
    assert use["instances_measured"] == 2


def test_what_a_worker_without_gpu_did_not_measure_is_null(lake: Lake) -> None:
    use = lake.table("usage").filter(role="ps").collect().row(0, named=True)

    assert (use["used_cpu_cores"], use["used_gpus"], use["gpu_mem_max_gib"]) == (0.5, None, None)
    assert use["net_read_bytes_per_s"] is None


def test_machines_know_their_gpu_memory_only_where_the_type_says_it(lake: Lake) -> None:
    machines = lake.table("machines").collect()

    assert machines.select("machine", "gpus", "gpu_mem_gib").rows() == [("m1", 2, 16.0), ("m2", 0, None)]


def test_machine_use_is_folded_by_mean_and_divided_by_the_machines_gpus(lake: Lake) -> None:
    use = lake.table("machine_usage").collect()

    assert use["machine"].to_list() == ["m1", "m2"]
    assert use["cpu_frac"].to_list() == pytest.approx([0.25, 0.1])
    assert use["gpu_frac"].to_list() == [pytest.approx(0.3), None]

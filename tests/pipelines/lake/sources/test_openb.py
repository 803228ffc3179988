"""What an openb pod list becomes: clusters by list, GPU shares and models, times from zero, and what phases tell."""

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake

Published = dict[str, Any]
BARE = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli", "p1,12000,16384,1,1000", "p2,6000,12288,1,460"]


@pytest.fixture
def jobs(published: Published, tmp_path: Path) -> dict[str, dict[str, Any]]:
    ingest("openb", published["openb"].write(tmp_path / "from"), tmp_path / "lake")
    return {job["job_id"]: job for job in Lake(tmp_path / "lake").table("jobs").collect().to_dicts()}


def test_requests_are_per_pod_in_cores_gib_and_gpus(jobs: dict[str, dict[str, Any]]) -> None:
    requests = {
        name: (job["req_cpu_cores"], job["req_mem_gib"], job["req_gpus"], job["instances"])
        for name, job in jobs.items()
    }

    assert requests["p2"] == (6.0, 12.0, 0.46, 1)
    assert requests["p3"] == (8.0, 30517 / 1024, 0.0, 1)
    assert requests["p4"] == (88.0, 320.0, 8.0, 1)


def test_allowed_models_are_sorted_and_named_once(jobs: dict[str, dict[str, Any]]) -> None:
    models = {name: job["gpu_type"] for name, job in jobs.items()}

    assert models == {"p1": None, "p2": "V100M16|V100M32", "p3": None, "p4": "P100|V100M32", "p5": None}


def test_times_are_seconds_from_the_traces_zero(jobs: dict[str, dict[str, Any]]) -> None:
    pod = jobs["p2"]

    times = [pod[name] for name in ("submit_ts", "start_ts", "end_ts")]
    assert times == [datetime.fromtimestamp(at, UTC) for at in (10, 20, 500)]
    assert (pod["queue_s"], pod["run_s"]) == (10.0, 480.0)


@pytest.mark.parametrize(
    ("pod", "status", "ended", "run_s", "censored"),
    [
        ("p1", "running", False, 1000.0, True),  # deleted when the trace ends: it ran on
        ("p2", None, True, 480.0, False),  # last seen running, deleted before: who knows how it ended
        ("p3", "cancelled", True, None, False),  # deleted while it waited
        ("p4", "completed", True, 955.0, False),
        ("p5", "failed", True, 10.0, False),
    ],
)
def test_phases_and_deletions_tell_how_pods_stand(
    jobs: dict[str, dict[str, Any]], pod: str, status: str | None, ended: bool, run_s: float | None, censored: bool
) -> None:
    job = jobs[pod]

    assert (job["status"], job["end_ts"] is not None) == (status, ended)
    assert (job["run_s"], job["run_s_censored"]) == (run_s, censored)


@pytest.mark.parametrize(
    ("deleted_s", "status", "ended", "censored"),
    [(1000, "running", False, True), (999, None, True, False)],
)
def test_only_what_is_deleted_at_the_very_end_ran_on(
    tmp_path: Path, deleted_s: int, status: str | None, ended: bool, censored: bool
) -> None:
    header = f"{BARE[0]},gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    pods = [f"p1,1000,1024,1,500,,LS,Running,0,{deleted_s},10", "p2,1000,1024,1,500,,LS,Succeeded,0,1000,10"]
    (tmp_path / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\n")
    (tmp_path / "openb_pod_list_default.csv").write_text("\n".join([header, *pods]) + "\n")
    ingest("openb", tmp_path, tmp_path / "lake")

    job = Lake(tmp_path / "lake").table("jobs").filter(pl.col("job_id") == "p1").collect().row(0, named=True)

    assert (job["status"], job["end_ts"] is not None, job["run_s_censored"]) == (status, ended, censored)


def test_each_list_is_a_cluster_with_all_the_nodes(published: Published, tmp_path: Path) -> None:
    folder = published["openb"].write(tmp_path / "from")
    (folder / "openb_pod_list_gpuspec33.csv.gz").write_bytes(
        gzip.compress((folder / "openb_pod_list_default.csv").read_bytes())
    )

    ingest("openb", folder, tmp_path / "lake")

    machines = Lake(tmp_path / "lake").table("machines").sort("cluster", "machine").collect()
    assert machines["cluster"].to_list() == ["default", "default", "gpuspec33", "gpuspec33"]
    last = machines.row(-1, named=True)
    assert (last["machine"], last["gpus"], last["gpu_type"], last["gpu_mem_gib"]) == ("n2", 8, "V100M32", 32.0)
    assert (last["cpu_cores"], last["mem_gib"]) == (96.0, 768.0)
    assert Lake(tmp_path / "lake").table("jobs", cluster="gpuspec33").collect().height == 5


def test_lists_below_csv_are_found(published: Published, tmp_path: Path) -> None:
    published["openb"].write(tmp_path / "from" / "csv")

    manifest = ingest("openb", tmp_path / "from", tmp_path / "lake").manifest

    assert {a.file for a in manifest.accounts} == {
        "csv/openb_node_list_gpu_node.csv",
        "csv/openb_pod_list_default.csv",
    }


def test_a_list_without_times_starts_at_zero_and_says_so(published: Published, tmp_path: Path) -> None:
    folder = published["openb"].write(tmp_path / "from", without=("openb_pod_list_default.csv",))
    (folder / "openb_pod_list_multigpu20.csv").write_text("\n".join(BARE) + "\n")

    manifest = ingest("openb", folder, tmp_path / "lake").manifest

    jobs = Lake(tmp_path / "lake").table("jobs", cluster="multigpu20").collect()
    assert jobs["submit_ts"].to_list() == [datetime(1970, 1, 1, tzinfo=UTC)] * 2
    nothing = jobs.select("start_ts", "end_ts", "queue_s", "run_s", "status", "gpu_type")
    assert nothing.null_count().row(0) == (2,) * 6
    assert not jobs["run_s_censored"].any()
    assert any("has no times" in warning for warning in manifest.warnings)

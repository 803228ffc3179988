"""What a Helios log becomes: Shanghai's time, clamped run times, unknown waits and states, clusters by folder."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake

Published = dict[str, Any]
HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def _log(folder: Path, rows: list[str], cluster: str = "Venus") -> Path:
    path = folder / cluster / "cluster_log.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def test_a_row_becomes_a_job_in_utc(published: Published, tmp_path: Path) -> None:
    ingest("helios", published["helios"].write(tmp_path / "from"), tmp_path / "lake")

    jobs = Lake(tmp_path / "lake").table("jobs", cluster="Venus").collect()
    first, limited, running = jobs.to_dicts()
    assert first["submit_ts"] == datetime(2020, 4, 1, 0, 0, tzinfo=UTC)
    assert (first["queue_s"], first["run_s"], first["status"]) == (60.0, 3600.0, "completed")
    assert (first["vc"], first["req_gpus"], first["req_cpu_cores"], first["nodes"]) == ("6214e9", 8.0, 64.0, 1)
    assert (limited["status"], limited["run_s_censored"]) == ("timeout", True)
    assert (running["status"], running["end_ts"], running["run_s"], running["run_s_censored"]) == (
        *("running", None, 50.0),
        True,
    )


def test_capacity_has_one_row_per_virtual_cluster_and_date(published: Published, tmp_path: Path) -> None:
    ingest("helios", published["helios"].write(tmp_path / "from"), tmp_path / "lake")

    capacity = Lake(tmp_path / "lake").table("capacity").sort("date", "vc").select("vc", "date", "gpus").collect()
    assert capacity.rows()[:2] == [("6214e9", date(2020, 4, 1), 64), ("vcA", date(2020, 4, 1), 8)]
    assert capacity.height == 4


def test_a_log_in_which_nobody_waits_has_unknown_waits(tmp_path: Path) -> None:
    row = "{},u,v,1,,1,COMPLETED,2020-04-01 08:00:00,2020-04-01 08:00:00,2020-04-01 08:00:{:02},{},0"
    manifest = ingest("helios", _log(tmp_path / "from", [row.format(i, i, i) for i in range(5)]), tmp_path / "lake")

    assert Lake(tmp_path / "lake").table("jobs").collect()["queue_s"].null_count() == 5
    assert any("the queueing delay is unknown" in w for w in manifest.manifest.warnings)


def test_a_mass_at_the_longest_run_time_is_a_clamp(tmp_path: Path) -> None:
    row = "{},u,v,1,,1,,2020-04-01 08:00:00,2020-04-01 08:00:01,2020-04-01 08:00:{:02},{},1"
    long = [row.format(i, 31, 30) for i in range(20)]
    short = [row.format(100 + i, 11, 10) for i in range(30)]

    manifest = ingest("helios", _log(tmp_path / "from", long + short), tmp_path / "lake").manifest

    jobs = Lake(tmp_path / "lake").table("jobs").collect()
    assert jobs.filter("run_s_censored")["run_s"].to_list() == [30.0] * 20
    assert any("cut off" in w for w in manifest.warnings)


def test_a_few_jobs_at_the_longest_run_time_are_no_clamp(tmp_path: Path) -> None:
    row = "{},u,v,1,,1,,2020-04-01 08:00:00,2020-04-01 08:00:01,2020-04-01 08:00:31,30,1"

    ingest("helios", _log(tmp_path / "from", [row.format(i) for i in range(19)]), tmp_path / "lake")

    assert not Lake(tmp_path / "lake").table("jobs").collect()["run_s_censored"].any()


def test_a_log_without_states_has_null_status_and_says_so(tmp_path: Path) -> None:
    row = "1,,,1,,,,2020-04-01 08:00:00,2020-04-01 08:00:01,2020-04-01 08:00:31,30,1"

    manifest = ingest("helios", _log(tmp_path / "from", [row]), tmp_path / "lake").manifest

    job = Lake(tmp_path / "lake").table("jobs").collect().row(0, named=True)
    assert (job["status"], job["user"], job["vc"], job["nodes"]) == (None, None, None, None)
    assert any("no state" in w for w in manifest.warnings)

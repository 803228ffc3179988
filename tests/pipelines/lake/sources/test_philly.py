"""What the Philly log becomes: attempts, lost times, the hour that repeats, and minutes of machine use."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import TABLES
from pipelines.errors import SourceError
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from tests.examples import examples

Published = dict[str, Any]
MakeJob = Callable[..., dict[str, object]]


def _jobs(tmp_path: Path, *jobs: dict[str, object]) -> list[dict[str, Any]]:
    folder = tmp_path / "from"
    folder.mkdir()
    (folder / "cluster_job_log").write_text(json.dumps(jobs))
    ingest("philly", folder, tmp_path / "lake")
    return Lake(tmp_path / "lake").table("jobs").sort("job_id").collect().to_dicts()


def test_run_time_is_the_sum_of_the_attempts(tmp_path: Path, job: MakeJob) -> None:
    spans = (("2017-10-03 00:01:00", "2017-10-03 00:11:00"), ("2017-10-03 00:20:00", "2017-10-03 01:20:00"))

    [row] = _jobs(tmp_path, job("a", *spans))

    assert row["submit_ts"] == datetime(2017, 10, 3, 7, 0, tzinfo=UTC)
    assert row["start_ts"] == datetime(2017, 10, 3, 7, 1, tzinfo=UTC)
    assert row["end_ts"] == datetime(2017, 10, 3, 8, 20, tzinfo=UTC)
    assert (row["queue_s"], row["run_s"], row["run_s_censored"]) == (60.0, 600.0 + 3600.0, False)
    assert (row["attempts"], row["req_gpus"], row["nodes"]) == (2, 3.0, 2)
    assert (row["vc"], row["status"], row["user"]) == ("6214e9", "completed", "ce2f4c")


@pytest.mark.parametrize("lost", [None, "", "None"])
def test_a_last_attempt_without_end_is_running_up_to_the_latest_time(
    lost: str | None, tmp_path: Path, job: MakeJob
) -> None:
    other = job("b", ("2017-10-03 00:00:00", "2017-10-03 02:00:00"))

    row, _ = _jobs(tmp_path, job("a", ("2017-10-03 01:00:00", lost), status="Killed"), other)

    assert (row["status"], row["end_ts"], row["run_s"], row["run_s_censored"]) == ("running", None, 3600.0, True)


def test_a_passed_job_without_end_is_completed_with_unknown_run_time(tmp_path: Path, job: MakeJob) -> None:
    [row] = _jobs(tmp_path, job("a", ("2017-10-03 01:00:00", None)))

    assert (row["status"], row["end_ts"], row["run_s"], row["run_s_censored"]) == ("completed", None, None, False)


def test_a_lost_earlier_attempt_makes_the_run_time_a_lower_bound(tmp_path: Path, job: MakeJob) -> None:
    [row] = _jobs(tmp_path, job("a", ("2017-10-03 01:00:00", "None"), ("2017-10-03 02:00:00", "2017-10-03 02:10:00")))

    assert (row["status"], row["run_s"], row["run_s_censored"]) == ("completed", 600.0, True)


def test_a_job_without_attempts_never_started(tmp_path: Path, job: MakeJob) -> None:
    [row] = _jobs(tmp_path, job("a", status="Killed"))

    assert (row["status"], row["attempts"]) == ("cancelled", 0)
    assert (row["start_ts"], row["end_ts"], row["run_s"], row["req_gpus"], row["nodes"]) == (None,) * 5


@pytest.mark.parametrize(
    ("start", "end", "start_utc", "run_s"),
    [
        ("2017-11-05 00:30:00", "2017-11-05 01:30:00", "07:30", 3600.0),  # the earlier meaning of 01:30
        ("2017-11-05 01:50:00", "2017-11-05 01:10:00", "08:50", 1200.0),  # the later one, or it would end too early
        ("2017-11-05 01:30:00", "2017-11-05 02:30:00", "08:30", 7200.0),
        ("2017-11-05 02:00:00", "2017-11-05 03:00:00", "10:00", 3600.0),
    ],
)
def test_the_hour_that_repeats(
    start: str, end: str, start_utc: str, run_s: float, tmp_path: Path, job: MakeJob
) -> None:
    [row] = _jobs(tmp_path, job("a", (start, end)))

    assert (row["start_ts"].strftime("%H:%M"), row["run_s"]) == (start_utc, run_s)


def test_machines_that_are_not_all_named_leave_their_number_unknown(tmp_path: Path, job: MakeJob) -> None:
    span = {"start_time": "2017-10-03 01:00:00", "end_time": "2017-10-03 01:10:00"}

    [row] = _jobs(tmp_path, job("a", attempts=[span | {"detail": [{"ip": None, "gpus": ["gpu0"]}]}]))

    assert (row["nodes"], row["req_gpus"]) == (None, 1.0)


@pytest.mark.parametrize(
    "text", ["", "[", '[{"jobid": "a"},', '[{"jobid": "a"}', '{"jobid": "a"}', '[{"jobid": ]', "[]", "jobid,status"]
)
def test_a_log_that_is_no_whole_array_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster_job_log").write_text(text)

    with pytest.raises(SourceError, match="cluster_job_log"):
        ingest("philly", tmp_path, tmp_path / "lake")


TIMES = st.sampled_from(
    [
        None,
        "",
        "None",
        7,
        "soon",
        "2017-10-03 00:30:00",
        "2017-11-05 00:59:59",
        "2017-11-05 01:30:00",
        "2018-01-01 00:00:00",
    ]
)
DETAIL = st.lists(
    st.fixed_dictionaries(
        {}, optional={"ip": st.sampled_from(["m1", "m2", None, 3]), "gpus": st.lists(st.just("gpu0"))}
    )
)
ATTEMPT = st.fixed_dictionaries(
    {}, optional={"start_time": TIMES, "end_time": TIMES, "detail": DETAIL | st.sampled_from([None, "x", {}])}
)
JOB = st.fixed_dictionaries(
    {},
    optional={
        "jobid": st.sampled_from(["a", "b", "c", "", None, 5, ["a"]]),
        "vc": st.sampled_from(["6214e9", None, 7]),
        "user": st.sampled_from(["u", None, ""]),
        "status": st.sampled_from(["Pass", "Failed", "Killed", "pass", None, 1]),
        "submitted_time": TIMES,
        "attempts": st.lists(ATTEMPT, max_size=3) | st.sampled_from([None, "None", {}, [None], [[]]]),
    },
)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(jobs=st.lists(JOB | st.sampled_from([None, 1, "x", []]), min_size=1, max_size=8))
def test_no_log_raises_and_every_job_is_accounted(jobs: list[object], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("log")
    (folder / "cluster_job_log").write_text(json.dumps(jobs))

    lake = Lake(folder / "lake")
    try:
        manifest = ingest("philly", folder, lake.path).manifest
    except SourceError as error:  # of a log without one good row, nothing is committed
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert f"none of {len(jobs)} rows can be used" in refused
        assert not list((lake.path / "manifests").glob("*"))
        return

    [account] = [a for a in manifest.accounts if a.table == "log"]
    rows = lake.table("jobs").collect()
    TABLES["jobs"].validate(rows)
    assert account.rows_in == len(jobs) == rows.height + account.rows_quarantined


def test_minutes_of_three_tables_are_joined(published: Published, tmp_path: Path) -> None:
    ingest("philly", published["philly"].write(tmp_path / "from"), tmp_path / "lake")

    use = Lake(tmp_path / "lake").table("machine_usage").select("machine", "ts", "cpu_frac", "mem_frac", "gpu_frac")
    assert use.collect().rows() == [
        ("m1", datetime(2017, 10, 3, 7, 24, tzinfo=UTC), 0.175, 0.75, 0.6),
        ("m1", datetime(2017, 10, 3, 7, 25, tzinfo=UTC), None, None, None),
        ("m2", datetime(2017, 11, 5, 8, 30, tzinfo=UTC), 0.05, None, None),  # 01:30 PDT and 01:30 PST
        ("m2", datetime(2017, 11, 5, 9, 30, tzinfo=UTC), None, None, 0.2),  # are an hour apart
    ]

"""A run as a whole: hours read once, a run that broke off goes on, nothing half-written, and the command's messages."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.connect.prometheus import server as http
from pipelines.connect.prometheus.measuring import FOLDER, Measured, Wanted, measure
from pipelines.errors import BadUsage, ConnectError, LakeError
from pipelines.lake.lake import Lake
from tests.pipelines.connect.prometheus.fake import Store, clock, every, query_of, server
from tests.pipelines.connect.prometheus.live import lake_of
from tests.pipelines.connect.prometheus.truth import T0, Job

UTIL = "DCGM_FI_DEV_GPU_UTIL"
GPU = {"gpu": "0", "Hostname": "n1", "modelName": "T4", "hpc_job": "7"}
HOUR_S = 3600.0


def busy_hours(last: int = 2) -> Store:
    """Return a server on which job 7 keeps a GPU half busy; its samples are those of the hour `last`."""
    functions = {"count_over_time": 240.0, "sum_over_time": 12_000.0, "max_over_time": 90.0}
    values = {(function, UTIL): [(GPU, value)] for function, value in functions.items()}
    return Store(values, {UTIL: [(GPU, every(15.0, 240, 50.0, T0 + last * HOUR_S + 5))]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake with a job of three hours."""
    return lake_of(tmp_path / "lake", [Job(job_id="7", start_s=T0, end_s=T0 + 3 * HOUR_S - 1, gpus=(("n1", 0),))])


def run(lake: Lake, handler: Callable[[httpx2.Request], httpx2.Response], **fields: object) -> Measured:
    """Measure the trace `live` with dcgm-job."""
    made, _ = server(handler)
    return measure(lake, made, Wanted(**({"trace": "live", "cluster": "main", "dialect": "dcgm-job"} | fields)))


def test_use_and_machines_are_added_to_the_lake(lake: Lake) -> None:
    found = run(lake, busy_hours())
    assert (found.hours_read, found.hours_kept, found.rows["usage"], found.rows["machine_usage"]) == (3, 0, 1, 3)
    usage = lake.table("usage", "live").collect()
    assert usage.select("job_id", "used_gpus", "coverage_frac").rows() == [("7", 0.5, 1.0)]
    hours = lake.table("machine_usage", "live").collect()
    assert hours["gpu_frac"].to_list() == [0.5] * 3
    assert hours["ts"].to_list()[0] == datetime.fromtimestamp(T0, UTC)
    assert lake.table("jobs", "live").collect().height == 1


def test_a_second_run_asks_for_nothing_but_the_time_and_changes_nothing(lake: Lake) -> None:
    run(lake, busy_hours())
    before = lake.manifest("live")
    again = busy_hours()
    found = run(lake, again)
    assert again.queries == ["time()"]
    assert (found.hours_read, found.hours_kept) == (0, 3)
    assert lake.manifest("live") == before


def test_a_run_that_breaks_off_writes_no_table_and_goes_on_where_it_stopped(lake: Lake) -> None:
    store, before = busy_hours(), lake.manifest("live")

    def fails_in_the_third_hour(request: httpx2.Request) -> httpx2.Response:
        _, at_s = query_of(request)
        return httpx2.Response(503) if at_s > T0 + 2 * HOUR_S else store(request)

    with pytest.raises(ConnectError, match="hours read so far are kept"):
        run(lake, fails_in_the_third_hour)
    assert lake.manifest("live") == before
    assert lake.table("usage", "live").collect().is_empty()
    found = run(lake, busy_hours())
    assert (found.hours_read, found.hours_kept, found.rows["usage"]) == (1, 2, 1)


@pytest.mark.slow
def test_hours_of_incomplete_answers_are_used_but_not_kept(lake: Lake) -> None:
    store = busy_hours()

    def partly(request: httpx2.Request) -> httpx2.Response:
        answer = store(request)
        _, at_s = query_of(request)
        warned = answer.json() | ({"warnings": ["store gateway is down"]} if at_s == T0 + 3 * HOUR_S else {})
        return httpx2.Response(200, json=warned)

    assert run(lake, partly).hours_partial == 1
    found = run(lake, busy_hours())
    assert (found.hours_read, found.hours_kept) == (1, 2)


@pytest.mark.slow
def test_a_damaged_file_of_an_hour_is_read_again(lake: Lake) -> None:
    run(lake, busy_hours())
    broken = sorted((lake.path / FOLDER).rglob("*.parquet"))[1]
    broken.write_bytes(broken.read_bytes()[:40])
    assert run(lake, busy_hours()).hours_read == 1


def at_time(store: Store, now_s: float) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda request: clock(now_s) if query_of(request)[0] == "time()" else store(request)


def test_a_job_of_the_running_hour_is_measured_two_minutes_after_its_end(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", [Job(job_id="7", start_s=T0, end_s=T0 + 1800, gpus=(("n1", 0),))])
    with pytest.raises(LakeError, match=r"live: 1 jobs ended in the last two minutes"):
        run(lake, at_time(busy_hours(0), T0 + 1860))
    found = run(lake, at_time(busy_hours(0), T0 + 1930))
    assert (found.rows["usage"], found.rows["machine_usage"], found.jobs["just_ended"]) == (1, 0, 0)
    assert not (lake.path / FOLDER).exists()
    assert run(lake, at_time(busy_hours(0), T0 + 3800)).rows["machine_usage"] == 1


def test_a_time_without_jobs_is_named(lake: Lake) -> None:
    with pytest.raises(LakeError, match="no job that started and ended in this time"):
        run(lake, busy_hours(), until=datetime.fromtimestamp(T0, UTC))


def test_use_is_that_of_the_run_though_the_mapping_keeps_the_name(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", [Job(job_id="7", start_s=T0, end_s=T0 + 10, gpus=(("n1", 0),))])
    used = "DCGM_FI_DEV_FB_USED"
    functions = {"count_over_time": 240.0, "sum_over_time": 1_000_000.0, "max_over_time": 5500.0}
    samples = [(T0 + 5.0, 1638.4), *((T0 + 20.0 + 15 * each, 5500.0) for each in range(239))]
    store = Store({(name, used): [(GPU, value)] for name, value in functions.items()}, {used: [(GPU, samples)]})
    run(lake, store)
    usage = lake.table("usage", "live").collect()
    assert usage.select("gpu_mem_avg_gib", "gpu_mem_max_gib").rows() == [(1.6, 1.6)]


@pytest.mark.slow
def test_what_sacct_measured_stays_where_prometheus_knows_nothing(lake: Lake, tmp_path: Path) -> None:
    from pipelines.lake.ingest import add_rows

    known = {"job_id": ["7"], "role": ["job"], "instances_measured": [1]}
    add_rows(lake, "live", "main", {"usage": pl.DataFrame(known | {"used_cpu_cores": [3.0], "used_gpus": [0.9]})})
    run(lake, busy_hours())
    row = lake.table("usage", "live").collect().row(0, named=True)
    assert (row["used_cpu_cores"], row["used_gpus"]) == (3.0, 0.5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dialect": "nagios"}, "dialect"),
        ({"dialect": "dcgm-node"}, "needs --held"),
        ({"held": Path("held.csv")}, "leave it out"),
        ({"match": "}"}, "--match"),
    ],
)
def test_what_cannot_be_measured_is_refused(lake: Lake, fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadUsage, match=message):
        run(lake, busy_hours(), **fields)


def test_the_command_ends_in_one_line_when_the_server_is_down(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PAUSES_S", (0.0,))
    monkeypatch.setenv("TAUT_PROMETHEUS_TOKEN", "very-secret")
    options = ["--url", "http://me:pass@127.0.0.1:9", "--dialect", "dcgm-job", "--lake", str(lake.path)]
    result = CliRunner().invoke(app, ["usage", "prometheus", *options])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.strip().splitlines()[-1].startswith("taut: http://127.0.0.1:9 gave no answer in 2 attempts")
    assert "secret" not in result.stderr
    assert "pass@" not in result.stderr


def test_the_command_prints_jobs_by_outcome(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = server(busy_hours())
    monkeypatch.setattr(httpx2, "Client", lambda **_: made.client)
    options = ["--url", "http://prom:9090", "--dialect", "dcgm-job", "--lake", str(lake.path), "--format", "csv"]
    result = CliRunner().invoke(app, ["usage", "prometheus", *options])
    assert result.exit_code == 0
    names, values = (line.split(",") for line in result.stdout.splitlines())
    row = dict(zip(names, values, strict=True))
    assert (row["jobs"], row["measured"], row["usage_rows"], row["machine_usage_rows"]) == ("1", "1", "1", "3")
    assert "hours: 3 read, 0 kept from before" in result.stderr

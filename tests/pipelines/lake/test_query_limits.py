"""Limits of `taut sql`: memory, time, spill and result; its folder after kill -9; and formulas in CSV."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.errors import QueryRefused
from pipelines.lake import sql
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.sql import PREFIX, spill_folder
from pipelines.render import render

ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
SPILLS = "SELECT count(*) FROM (SELECT DISTINCT md5(range::VARCHAR) || md5((range + 1)::VARCHAR) FROM range(5000000))"
HOARDS = "SELECT len(list(range)) FROM range(2000000000)"
HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
ROW = "1,u,v,1,,1,FAILED,2020-04-01 08:00:00,2020-04-01 08:00:01,2020-04-01 08:00:31,30,1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("limits")
    (place / "from" / "Venus").mkdir(parents=True)
    (place / "from" / "Venus" / "cluster_log.csv").write_text(f"{HEADER}\n{ROW}\n")
    ingest("helios", place / "from", place / "lake")
    return place / "lake"


def limited(folder: Path, text: str, **limits: Any) -> pl.DataFrame:
    return sql.query(Lake(folder), text, **limits)


def test_a_query_without_end_is_interrupted(folder: Path) -> None:
    began = time.monotonic()
    with pytest.raises(QueryRefused, match=r"longer than 0\.2 s"):
        limited(folder, ENDLESS, time_s=0.2)
    assert time.monotonic() - began < 60


def test_the_limit_of_memory_ends_with_the_query(folder: Path) -> None:
    with pytest.raises(QueryRefused, match="more than 200 MB of memory"):
        limited(folder, HOARDS, memory_mb=200, spill_mb=50)
    assert limited(folder, "SELECT 1 AS one").rows() == [(1,)]


def test_spill_is_limited(folder: Path) -> None:
    with pytest.raises(QueryRefused, match="spilled more than 10 MB"):
        limited(folder, SPILLS, memory_mb=128, spill_mb=10)


@pytest.mark.parametrize(("tabular", "rows"), [(False, 3_000_000), (True, 300_000)])
def test_a_result_that_would_not_fit_is_refused(folder: Path, tabular: bool, rows: int) -> None:
    with pytest.raises(QueryRefused, match="result is larger than"):
        limited(folder, f"FROM range({rows})", memory_mb=120, tabular=tabular)


@pytest.mark.slow
def test_a_query_stays_within_its_memory(folder: Path) -> None:
    measured = f"""
import resource
from pipelines.lake.lake import Lake
from pipelines.lake.sql import query
try:
    query(Lake({str(folder)!r}), {HOARDS!r}, memory_mb=600)
except Exception as error:
    print(error, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", measured], capture_output=True, text=True, timeout=120)

    assert "more than 600 MB" in done.stdout
    assert 0 < int(done.stdout.split()[-1]) / 1000 <= 600


def test_modules_in_the_present_folder_are_not_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckdb.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)

    assert limited(folder, "SELECT 1 AS one").rows() == [(1,)]


def test_a_query_ends_with_the_process_that_asked(folder: Path) -> None:
    imports = "from pipelines.lake.lake import Lake; from pipelines.lake.sql import query"
    endless = f"{imports}; query(Lake({str(folder)!r}), {ENDLESS!r})"
    asking = subprocess.Popen([sys.executable, "-c", endless])
    children = Path(f"/proc/{asking.pid}/task/{asking.pid}/children")
    while not (child := children.read_text().strip()):
        time.sleep(0.05)
    time.sleep(1.0)
    asking.kill()
    asking.wait()

    end = time.monotonic() + 60
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


HOLDER = """
import sys, time
from pipelines.lake.sql import spill_folder
with spill_folder() as folder:
    (folder / "spill").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_query_spilled_is_removed_by_the_next_and_a_running_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    killed, running = (Path(holder.stdout.readline().strip()) for holder in holders)
    holders[0].send_signal(signal.SIGKILL)
    holders[0].wait()
    assert killed.exists()

    with spill_folder() as own:
        left = set(tmp_path.glob(f"{PREFIX}*"))
    holders[1].kill()
    for holder in holders:
        holder.communicate()

    assert left == {own, running}
    assert not own.exists()


def test_texts_that_a_spreadsheet_would_run_are_quoted_and_numbers_are_not() -> None:
    rows = pl.DataFrame({"=x": ["=1+1", "+1", "-a", "@b", "\tc", "ok"], "n": [-1, 2, -3, 4, 5, 6], "f": [-0.5] * 6})
    inert, raw = io.StringIO(), io.StringIO()
    render(rows, "csv", stream=inert, inert=True)
    render(rows, "csv", stream=raw)

    assert inert.getvalue().splitlines()[:4] == ["'=x,n,f", "'=1+1,-1,-0.5", "'+1,2,-0.5", "'-a,-3,-0.5"]
    assert raw.getvalue().splitlines()[1] == "=1+1,-1,-0.5"
    assert len(pl.read_csv(io.StringIO(inert.getvalue()))) == 6

"""Folders for results: what cannot be written is refused before any work, and what the files of a run hold."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import BadUsage
from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.metrics import Uses, summarise
from pipelines.simulation.paired_runs import Arrivals, Run
from pipelines.simulation.results_folder import fresh_folder, open_folder, write_run
from pipelines.simulation.settings import SimulationSettings
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule

Check = Callable[[Path], Path]


@pytest.mark.parametrize("check", [fresh_folder, open_folder])
def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path: Path, check: Check) -> None:
    wanted = tmp_path / "a" / "b"

    assert check(wanted) == wanted
    assert check(tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("check", [fresh_folder, open_folder])
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("file", "found a file there"),
        ("file/below", "found a file there"),
        ("file/far/below", "found a file there"),
        ("x" * 300, "file name too long"),
        ("zero\0byte", "embedded null byte"),
        ("/proc/x", "no such file or directory"),
        ("dangling", "found a file there"),
    ],
)
def test_where_nothing_can_be_written_the_option_is_named(tmp_path: Path, check: Check, name: str, found: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    with pytest.raises(BadUsage) as caught:
        check(tmp_path / name)

    said = str(caught.value)
    assert said.startswith(f"--out {tmp_path / name}: {found}")
    assert said.endswith("expected a writable folder; name another")
    assert "\n" not in said


def test_a_folder_without_leave_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda folder, mode: False)

    with pytest.raises(BadUsage, match="found it read-only"):
        open_folder(tmp_path)


def test_a_folder_with_something_in_it_is_not_fresh(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    assert open_folder(tmp_path) == tmp_path
    with pytest.raises(BadUsage, match="found files in it, expected a new or empty folder"):
        fresh_folder(tmp_path)


@pytest.mark.parametrize(
    "command",
    ["simulate", "study shrinking", "study shrinking-paper", "study cost", "study fragmentation"],
)
def test_every_command_that_writes_a_folder_refuses_it_before_it_opens_the_lake(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("mine")
    bad = tmp_path / "file" / "below"

    result = CliRunner().invoke(app, [*command.split(), "--lake", str(tmp_path / "none"), "--out", str(bad)])

    assert result.exit_code == 2, result.stderr
    assert result.stderr.strip() == (f"taut: --out {bad}: found a file there, expected a writable folder; name another")


def written(folder: Path, ran: Schedule, names: Mapping[str, Sequence[str | None]]) -> dict[str, object]:
    count = len(ran.workload)
    arrivals = Arrivals(devices="all", seed=3, at_s=ran.workload.arrive_s, picks=np.arange(count))
    run = Run(
        arm="requested",
        slowdown_model="unchanged",
        arrivals=arrivals,
        schedule=ran,
        uses=Uses(mean=np.full((count, 3), np.nan)),
        metrics=summarise(ran),
    )
    settings = SimulationSettings(cluster=ClusterSpec(machines=ran.machines, source="a table"))
    write_run(folder, run, names, settings, {"seed": 3, "policy": "fifo", "aging": math.inf}, ["jobs=all"])
    summary: dict[str, object] = json.loads((folder / "simulation.json").read_text(encoding="utf-8"))
    return summary


def test_a_run_is_a_summary_an_event_log_and_a_series(tmp_path: Path) -> None:
    came = [Came(run_s=20.0), Came(at_s=10.0, run_s=500.0)]
    ran = [Ran(job=0, start_s=0.0, end_s=20.0), Ran(job=1, start_s=20.0, end_s=520.0, ending=Ending.RUNNING)]
    folder = tmp_path / "new" / "run"

    summary = written(folder, schedule(came, ran), {"job_id": ["a", None]})

    log, steps = pl.read_parquet(folder / "events.parquet"), pl.read_parquet(folder / "series.parquet")
    assert log.columns[:4] == ["time_s", "event", "serial", "job_id"]
    assert log.rows()[0] == (0.0, "arrive", 0, "a", 1, 4.0, 8.0, 2.0, "")
    assert log["event"].to_list() == ["arrive", "start", "arrive", "complete", "start"]
    assert log["job_id"].to_list() == ["a", "a", None, "a", None]
    assert steps["until_s"].to_list() == [60.0, 100.0]
    assert summary["files"] == {"events.parquet": {"rows": 5}, "series.parquet": {"rows": 2}}
    assert summary["settings"] == {"seed": 3, "policy": "fifo", "aging": None}
    assert summary["capacity"] == "cluster (a table): 1 machines, 4 GPUs, 8 cores, 16 GiB, GPU types not given"
    metrics = summary["metrics"]
    assert isinstance(metrics, dict)
    assert (metrics["completed"], metrics["running"], metrics["cpu_used_frac"]) == (1, 1, None)


def test_no_job_at_all_can_be_written(tmp_path: Path) -> None:
    written(tmp_path / "run", schedule([], end_s=100.0), {})

    assert pl.read_parquet(tmp_path / "run" / "events.parquet").height == 0
    assert pl.read_parquet(tmp_path / "run" / "series.parquet")["free_gpus"].to_list() == [4.0, 4.0]

"""The `taut` command: its help is documented word for word, it starts fast, and it fails in one line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.cli.reference import PAGE, command_line, command_paths
from pipelines.cli.study import load
from pipelines.studies import STUDIES

HEAVY = ("xgboost", "mlflow", "optuna", "sklearn", "pandas", "polars", "duckdb", "numpy", "scipy", "pyarrow")


def test_every_command_of_the_design_is_there() -> None:
    expected = {
        "demo", "explain-pending", "fetch", "init", "kube", "synth", "ingest", "job", "sql", "train", "evaluate",
        "promote", "models", "place", "plan", "predict", "reclaim", "recommend", "report", "retrain", "serve",
        "simulate", "slurm", "stats", "token", "rightsize", "schedule", "sites", "study", "tune", "usage",
    }  # fmt: skip
    assert {path[0] for path in command_paths() if len(path) == 1} == expected


def test_every_command_of_a_group_has_its_own_help_in_the_reference() -> None:
    paths = command_paths()
    assert {("study", name) for name in STUDIES} <= set(paths)
    text = command_line()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        "taut",
        *(" ".join(("taut", *path)) for path in paths),
    ]
    assert text.count("Usage: taut study reclaim ") == 1
    assert "--probation-min" in text


@pytest.mark.parametrize("name", STUDIES)
def test_the_registry_names_the_study_it_loads(name: str) -> None:
    assert load(name).name == name


def test_the_generated_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == command_line(), "write it anew with `python -m pipelines.cli.reference`"


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys, pipelines.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [["ingest"], ["nonsense"], ["sql"], ["sql", "--format", "yaml", "select 1"]])
def test_bad_usage_exits_with_two(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_failure_is_one_line_on_stderr_and_exit_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["ingest", "philly", "--from", str(tmp_path), "--lake", str(tmp_path / "lake")])
    assert result.exit_code == 1
    assert result.stdout == ""
    *_, last = result.stderr.strip().splitlines()
    assert last.startswith("taut: ")
    assert "cluster_job_log" in last
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("below", [".", "raw"])
def test_errors_of_the_file_system_name_the_path_and_a_cure(tmp_path: Path, below: str) -> None:
    (tmp_path / "jobs.csv").write_text("mine")
    result = CliRunner().invoke(app, ["synth", "pai", "--to", str(tmp_path / "jobs.csv" / below), "--tasks", "1000"])
    assert result.exit_code == 1
    assert "Errno" not in result.stderr
    assert "FileExistsError" not in result.stderr
    assert re.search(r"taut: .*jobs\.csv.*: .*; check the path", result.stderr.splitlines()[-1])
    assert (tmp_path / "jobs.csv").read_text() == "mine"


def test_version_prints_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip().count(".") == 2


def test_an_ingest_leaves_a_folder_that_is_no_lake_alone(tmp_path: Path) -> None:
    mine = tmp_path / "home" / "jobs" / "mine.parquet"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")

    made = CliRunner().invoke(app, ["synth", "pai", "--to", str(tmp_path / "raw"), "--tasks", "1000"])
    result = CliRunner().invoke(
        app, ["ingest", "pai", "--from", str(tmp_path / "raw"), "--lake", str(tmp_path / "home")]
    )

    assert made.exit_code == 0
    assert result.exit_code == 1
    assert "no lake" in result.stderr
    assert mine.read_text() == "mine"


def test_a_synthetic_trace_is_never_called_by_a_real_name(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["synth", "pai", "--to", str(tmp_path / "raw"), "--tasks", "1000"])
    into = ["--from", str(tmp_path / "raw"), "--lake", str(tmp_path / "lake")]

    refused = CliRunner().invoke(app, ["ingest", "pai", *into, "--as", "pai"])
    named = CliRunner().invoke(app, ["ingest", "pai", *into])

    assert refused.exit_code == 2
    assert named.exit_code == 0
    assert "trace pai-synth" in named.stderr


def test_help_is_in_panels_and_names_no_type_of_a_flag() -> None:
    text = command_line()
    assert "<bool>" not in text
    panels = re.findall(r"╭─ ([\w ]+) ─", text.partition("## taut demo")[0])
    assert panels == [
        "Options",
        "Start",
        "Data",
        "Models",
        "Recommend",
        "Serve",
        "Simulate",
        "Live clusters",
        "Studies",
    ]


def test_the_shell_can_complete_commands() -> None:
    environment = {"_TAUT_COMPLETE": "complete_bash", "COMP_WORDS": "taut right", "COMP_CWORD": "1"}
    result = CliRunner().invoke(app, [], prog_name="taut", env=environment)
    assert result.stdout.split() == ["rightsize"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("Query interrupted")])
def test_an_interrupt_says_what_is_safe(error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pipelines.lake.ingest.clusters_in", stopped)
    result = CliRunner().invoke(app, ["ingest", "pai", "--from", str(tmp_path), "--lake", str(tmp_path / "lake")])
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        "taut: interrupted: nothing was committed, the lake is as before; run it again"
    )

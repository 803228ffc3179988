"""The commands of `taut slurm`: rows on stdout, and errors in one line with a cure."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app

GOLDEN = Path(__file__).resolve().parents[1] / "connect" / "slurm" / "sacct.txt"


def run(*words: str | Path, text: str | None = None, **environment: str) -> Result:
    return CliRunner().invoke(app, ["slurm", *map(str, words)], input=text, env=environment)


def test_files_are_listed_and_the_settings_are_those_the_agent_reads(tmp_path: Path) -> None:
    result = run("files", "--out", tmp_path / "etc", "--cluster", "taut", "--format", "json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    assert all(Path(row["file"]).is_file() for row in rows)
    refused = run("agent", "--config", tmp_path / "etc" / "slurm.toml", "--socket", tmp_path / ("x" * 200))
    assert refused.exit_code == 2
    assert "longer than a Unix socket's name may be" in refused.stderr


@pytest.mark.slow
def test_a_history_is_read_from_text_and_again_changes_nothing(tmp_path: Path) -> None:
    words = (
        "history",
        "--from",
        "-",
        "--cluster",
        "taut",
        "--interval-s",
        "1",
        "--lake",
        tmp_path / "lake",
        "--format",
        "json",
    )
    first, again = (run(*words, text=GOLDEN.read_text()) for _ in range(2))
    assert first.exit_code == 0, first.stderr
    [row] = json.loads(first.stdout)
    assert row.items() >= {"cluster": "taut", "read": 15, "new": 15, "records": 15}.items()
    assert row["recurring"] == row["recurring_by_name"] == pytest.approx(14 / 15)
    assert json.loads(again.stdout)[0]["new"] == 0
    queried = CliRunner().invoke(
        app, ["sql", "--lake", str(tmp_path / "lake"), "--format", "csv", "SELECT max(req_mem_gib) FROM jobs"]
    )
    assert queried.stdout.splitlines()[1] == "64.0"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("history", "--from", "none.txt"), 2, "expected a file with sacct's text"),
        (("history",), 1, "sacct is not installed here"),
        (("history", "--from", str(GOLDEN), "--cluster", "../x"), 1, "cluster '../x': expected letters"),
        (("agent", "--config", "none.toml"), 2, "none.toml"),
        (("feedback", "--url", "nonsense"), 1, "expected one as http://127.0.0.1:8080"),
    ],
)
def test_an_error_is_one_line_with_a_cure(tmp_path: Path, words: tuple[str, ...], code: int, message: str) -> None:
    more = ("--lake", tmp_path / "lake") if words[0] == "history" else ()
    result = run(*words, *more, PATH=str(tmp_path))
    assert result.exit_code == code
    assert len(result.stderr.strip().splitlines()) == 1
    assert message in result.stderr
    assert not list(tmp_path.rglob("*.csv"))

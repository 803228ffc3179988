"""`taut report`: what it writes and says, and what it refuses before the work."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from tests.pipelines.simulation.sites.recorded_sites import grids_on_disk
from tests.pipelines.statistics.lakes import make_lake, ran

Taut = Callable[..., Result]


@pytest.fixture
def taut(tmp_path: Path) -> Taut:
    make_lake(tmp_path / "lake", {"jobs": [ran(at, 60.0) for at in range(3)]}).close()

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["report", "--lake", str(tmp_path / "lake"), *arguments])

    return run


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--trace", "other"], "no trace 'other'", 1),
        (["--price-gpu-hour", "2"], "expected it after the amount", 2),
        (["--price-gpu-hour", "free USD"], "expected an amount above 0", 2),
        (["--bundles", "nowhere"], "no such folder", 2),
        (["--bundles", "nowhere", "--no-models"], "give one of them", 2),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_written(
    taut: Taut, tmp_path: Path, arguments: list[str], said: str, code: int
) -> None:
    out = tmp_path / "report.html"

    result = taut("--out", str(out), *arguments)

    assert result.exit_code == code
    assert said in result.stderr
    assert not out.exists()


def test_a_folder_is_no_file_to_write(taut: Taut, tmp_path: Path) -> None:
    result = taut("--out", str(tmp_path))

    assert result.exit_code == 2
    assert "found a folder, expected a file's name" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--grid", "GRID"), "expected one; choose with --zone"),
        (("--zone", "east"), "--zone without --grid"),
    ],
)
def test_a_grid_has_one_zone(taut: Taut, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    grids_on_disk(tmp_path / "grid")
    given = [str(tmp_path / "grid") if each == "GRID" else each for each in options]

    result = taut("--no-models", "--out", str(tmp_path / "r.html"), *given)

    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_a_page_is_written_whole_with_energy_and_without_models_and_stdout_stays_empty(
    taut: Taut, tmp_path: Path
) -> None:
    grids_on_disk(tmp_path / "grid")
    out = tmp_path / "new" / "report.html"
    grid = ("--grid", str(tmp_path / "grid"), "--zone", "east", "--pue", "1.2")

    result = taut("--no-models", *grid, "--out", str(out), "--title", "Ours & theirs")

    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "opens in any browser without a network" in result.stderr
    written = out.read_text(encoding="utf-8")
    assert written.startswith("<!DOCTYPE html>")
    assert "<h1>Ours &amp; theirs</h1>" in written
    assert '<section id="energy">' in written
    assert '<section id="models">' not in written
    assert [each.name for each in out.parent.iterdir()] == ["report.html"]

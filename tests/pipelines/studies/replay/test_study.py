"""`taut study replay` from a lake of four tiny jobs: rows, notes, files, and what is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.lake.ingest import ingest
from tests.pipelines.conftest import HELIOS, PHILLY


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    ingest("philly", PHILLY.write(folder / "philly"), folder / "lake")
    ingest("helios", HELIOS.write(folder / "helios"), folder / "lake")
    return folder / "lake"


def taut(lake: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["study", "replay", "--lake", str(lake), "--format", "json", *arguments])


def test_rows_are_flat_and_every_assumption_is_said(lake: Path) -> None:
    result = taut(lake, "--trace", "philly", "--reading", "machine_list", "--order", "sjf", "--sizes", "recent_20")

    rows = json.loads(result.stdout)
    assert [(row["order"], row["sizes"]) for row in rows] == [("fifo", "none"), ("sjf", "recent_20"), ("sjf", "oracle")]
    assert {(row["trace"], row["cluster"], row["reading"]) for row in rows} == {("philly", "philly", "machine_list")}
    assert rows[0]["capacity_gpus"] == 10
    assert "note: capacity machine_list: the machine list of philly" in result.stderr
    assert "only GPUs bind" in result.stderr


@pytest.mark.slow
def test_a_folder_holds_the_rows_with_their_notes(lake: Path, tmp_path: Path) -> None:
    result = taut(lake, "--trace", "philly", "--load", "0.9", "--detail", "--out", str(tmp_path / "out"))

    assert result.exit_code == 0, result.stderr
    book = json.loads((tmp_path / "out" / "rows.json").read_text())
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"rows.json"}  # no order gains on so few jobs, so there is nothing to draw
    assert {row["gang_gpus"] for row in book["rows"]} == {"all", "1", "2-7", "8", ">8"}
    assert any("NOT THE TRACE'S CLUSTER" in note for note in book["notes"])


def test_a_screen_shows_hours_and_leaves_out_what_is_the_same(lake: Path) -> None:
    asked = ["--trace", "philly", "--reading", "machine_list", "--order", "sjf", "--sizes", "recent_20"]

    result = CliRunner().invoke(app, ["study", "replay", "--lake", str(lake), *asked])

    heading, _, fifo, *_ = result.stdout.splitlines()
    assert heading.split()[:7] == ["reading", "capacity_gpus", "offered_load", "order", "sizes", "jobs", "jct_mean_h"]
    assert "gang_gpus" not in heading
    assert fifo.split()[3:5] == ["fifo", "none"]


def test_a_screen_has_the_differences_to_las_and_predicted_orders(lake: Path) -> None:
    asked = ["--trace", "philly", "--reading", "machine_list", "--sizes", "oracle"]

    result = CliRunner().invoke(
        app, ["study", "replay", "--lake", str(lake), *asked, "--order", "las", "--order", "gittins"]
    )

    assert result.exit_code == 0, result.stderr
    assert "less_las_h" in result.stdout
    assert "less_srtf_h" not in result.stdout


def test_the_same_question_gives_the_same_bytes(lake: Path) -> None:
    first, second = (taut(lake, "--trace", "philly", "--reading", "load").stdout for _ in range(2))

    assert first == second


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trace", "helios"], "helios has the clusters Earth, Venus: choose one with --cluster"),
        (["--trace", "philly", "--order", "magic"], "no order magic for these jobs; there are fifo"),
        (["--trace", "philly", "--sizes", "magic"], "no sizes magic for these jobs; there are predicted"),
        (["--trace", "philly", "--reading", "magic"], "no reading magic; there are machine_list"),
        (["--trace", "philly", "--since", "soon"], "--since: found 'soon', expected a date such as 2017-11-01"),
        (["--trace", "philly", "--since", "2030-01-01"], "no job was submitted from --since 2030-01-01 to --until the"),
        (["--trace", "philly", "--since", "2030-01-01"], ": give dates between 2017-"),
        (["--trace", "philly", "--until", "2001-01-01"], "no job was submitted from --since the first to --until 2001"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(lake: Path, arguments: list[str], said: str) -> None:
    result = taut(lake, *arguments)

    assert result.exit_code == 2
    assert said in result.stderr

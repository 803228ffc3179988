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


def test_a_screen_shows_hours_and_leaves_out_what_is_the_same(lake: Path) -> None:
    asked = ["--trace", "philly", "--reading", "machine_list", "--order", "sjf", "--sizes", "recent_20"]

    result = CliRunner().invoke(app, ["study", "replay", "--lake", str(lake), *asked])

    heading, _, fifo, *_ = result.stdout.splitlines()
    assert heading.split()[:7] == ["reading", "capacity_gpus", "offered_load", "order", "sizes", "jobs", "jct_mean_h"]
    assert "gang_gpus" not in heading
    assert fifo.split()[3:5] == ["fifo", "none"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trace", "helios"], "helios has the clusters Earth, Venus: choose one with --cluster"),
        (["--trace", "philly", "--order", "magic"], "no order magic; there are fifo"),
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

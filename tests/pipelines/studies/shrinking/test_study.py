"""`taut study shrinking` on a tiny lake: rows, notes, tables, and the folder of results."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.lake.ingest import ingest
from pipelines.synth.pai import synthesise


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    synthesise(folder / "raw", tasks=1000, seed=3, tagged_share=0.9)
    ingest("pai", folder / "raw", folder / "lake", as_name="pai-synth")
    return folder / "lake"


def taut(lake: Path, *arguments: str) -> Result:
    where = ["--lake", str(lake), "--predictor", "oracle", "--seeds", "2"]
    return CliRunner().invoke(app, ["study", "shrinking", *arguments, *where])


@pytest.mark.slow
def test_notes_say_what_is_assumed_and_the_screen_has_every_table(lake: Path) -> None:
    result = taut(lake, "--load", "70")

    assert result.exit_code == 0, result.stderr
    notes = " ".join(result.stderr.split())
    for said in ("drawn again and again by type", "taken as 16 GiB", "2 seeds from 0", "theta 0.05: correlation"):
        assert said in notes
    headings = [line.split()[:3] for line in result.stdout.splitlines() if line.startswith("gnn")]
    assert [columns[-1] for columns in headings] == ["truth", "truth", "truth"]


@pytest.mark.slow
def test_rows_and_the_folder_are_the_same_each_time(lake: Path, tmp_path: Path) -> None:
    first, second = (taut(lake, "--load", "60", "--format", "json", "--out", str(tmp_path / name)) for name in "ab")

    rows = json.loads(first.stdout)
    assert {row["table"] for row in rows} == {"claims", "goal", "harm"}
    assert {row["rate_per_h"] for row in rows if row["table"] == "claims"} == {60.0}
    assert len([row for row in rows if row["table"] == "goal"]) % 3 == 0
    assert second.stdout == first.stdout
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]
    assert set(files[0]) == {"rows.json", "runs.parquet"}

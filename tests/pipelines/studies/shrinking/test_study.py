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
    for said in ("synthetic jobs drawn with replacement", "taken as 16 GiB", "seeds 0 to 1", "theta 0.05: correlation"):
        assert said in notes
    headings = [line.split()[:3] for line in result.stdout.splitlines() if line.startswith("gnn")]
    assert headings == [
        ["gnn", "truth", "figure"],
        ["gnn", "truth", "arm"],
        ["gnn", "truth", "arm"],
        ["gnn", "truth", "arm"],
        ["gnn", "truth", "arm"],
    ]


@pytest.mark.slow
def test_rows_of_a_table_share_their_names_and_the_folder_is_the_same_each_time(lake: Path, tmp_path: Path) -> None:
    first, second = (
        taut(lake, "--load", "50", "--load", "60", "--format", "json", "--out", str(tmp_path / name)) for name in "ab"
    )

    rows = json.loads(first.stdout)
    assert {row["about"] for row in rows} == {"claim", "bottleneck", "goal", "harm", "jobs_harmed", "load"}
    for about in {row["about"] for row in rows}:
        own = [row for row in rows if row["about"] == about]
        assert len({tuple(row) for row in own}) == 1
        assert all(any(row[name] is not None for row in own) for name in own[0])
    assert {row["rate_per_h"] for row in rows if row["about"] == "claim"} == {60.0}, "the highest, without the paper's"
    assert len([row for row in rows if row["about"] == "goal"]) % 3 == 0
    assert second.stdout == first.stdout
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]
    assert {Path(name).suffix for name in files[0]} == {".json", ".parquet"}

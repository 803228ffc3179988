"""`import taut`: what it returns is what the commands print, and importing it costs little."""

import json
import runpy
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

import taut
from pipelines.cli import app
from pipelines.errors import BadUsage, LakeError
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.synth.pai import synthesise
from taut.lake import OpenLake

TOUR = Path(__file__).resolve().parents[1] / "docs" / "tour.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of a synthetic trace with use."""
    place = tmp_path_factory.mktemp("taut")
    synthesise(place / "raw", tasks=1000, seed=3, tagged_share=0.9)
    ingest("pai", place / "raw", place / "lake", as_name="pai-synth")
    return place / "lake"


@pytest.fixture
def lake(folder: Path) -> OpenLake:
    return taut.open(folder)


def test_tables_are_those_of_the_lake(lake: OpenLake, folder: Path) -> None:
    assert lake.jobs().equals(Lake(folder).table("jobs", "pai-synth").collect())
    assert lake.usage().equals(Lake(folder).table("usage", "pai-synth").collect())
    assert lake.sql("select count(*) as n from jobs").item() == lake.jobs().height
    assert lake.jobs().head(3).to_pandas().shape == (3, lake.jobs().width)


def test_right_sizing_is_that_of_the_command(lake: OpenLake, folder: Path) -> None:
    printed = CliRunner().invoke(app, ["rightsize", "--lake", str(folder), "--format", "json"])
    rows = lake.rightsize()
    assert [row["group"] for row in json.loads(printed.stdout)] == rows["group"].to_list()
    assert rows["cpu_cores_target"].drop_nulls().len() > 0


@pytest.mark.slow
def test_the_tour_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_LAKE", str(folder))

    _, found = runpy.run_path(str(TOUR), run_name="tour")["app"].run()

    assert found["waits"]["jobs"].sum() == taut.open(folder).sql("select count(end_ts) from jobs").item()
    assert found["worst"].height == 10
    assert found["chart"].to_dict()["data"]


def test_errors_are_those_of_the_command(lake: OpenLake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"no lake at .*; make one with `taut ingest`"):
        taut.open(tmp_path / "none")
    with pytest.raises(taut.PipelineError, match="did you mean 'pai-synth'"):
        lake.jobs("pai-snth")
    with pytest.raises(BadUsage, match="has no time zone"):
        lake.train(until=datetime(2020, 7, 1))
    with pytest.raises(AttributeError, match="it has AsyncClient, Client, "):
        taut.Nonsense  # noqa: B018
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_training_registers_what_it_returns(lake: OpenLake, folder: Path) -> None:
    trained = lake.train(types=["other"], threads=1)
    listed = CliRunner().invoke(app, ["models", "--lake", str(folder), "--format", "json"])
    assert {each.version.name for each in trained} == {row["name"] for row in json.loads(listed.stdout)}


def test_a_client_needs_no_frames() -> None:
    code = "import sys, taut; taut.Client('http://127.0.0.1:9'); print({'polars', 'duckdb'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )

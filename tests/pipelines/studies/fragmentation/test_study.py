"""`taut study fragmentation` from a lake of a tiny openb: tables, published results, files, and refusals."""

import json
from pathlib import Path
from typing import get_args, get_type_hints

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation.published import ALLOCATED, FOLDER, POLICIES
from pipelines.studies.fragmentation.study import Config, filled_up, pod_list
from tests.pipelines.conftest import PHILLY
from tests.pipelines.studies.fragmentation.tiny import results, tiny_lake, tiny_openb


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fgd")
    ingest("philly", PHILLY.write(folder / "philly"), folder / "lake")
    return tiny_lake(folder, "default", "gpuspec33", "own")


@pytest.fixture(autouse=True)
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Publish results of two workloads, one of which the lake lacks, where the settings say."""
    monkeypatch.setenv("TAUT_TRACES", str(tmp_path / "traces"))
    return results(tmp_path / "traces" / FOLDER, {policy: [80.0, 82.0] for policy in POLICIES}, "default", "new")


def taut(lake: Path, *arguments: str) -> Result:
    fixed = ["study", "fragmentation", "--lake", str(lake), "--seeds", "2", "--processes", "1", "--format", "json"]
    return CliRunner().invoke(app, [*fixed, *arguments])


def test_the_options_name_what_there_is() -> None:
    assert get_args(get_args(get_type_hints(Config)["policies"])[0]) == tuple(POLICIES)


def test_rows_stand_beside_the_published_ones(lake: Path) -> None:
    result = taut(lake)

    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    found = [row for row in rows if row["table"] == "unallocated"]
    assert {row["workload"] for row in found} == {"default"}
    assert len(found) == 6
    held = [row for row in found if row["met"] is not None]
    assert [(row["workload"], row["policy"]) for row in held] == [("default", policy) for policy in POLICIES]
    assert all(row["difference_points"] == pytest.approx(row["unallocated_pct"] - 19.0) for row in held)
    judged = [row for row in rows if row["table"] == "bar"]
    assert len(judged) == 6 + 2
    assert all(isinstance(row["met"], bool) for row in judged)
    assert "note: the lake lacks new: left out" in result.stderr


def test_without_published_results_their_columns_are_empty_and_it_is_said(lake: Path, published: Path) -> None:
    (published / ALLOCATED).unlink()

    result = taut(lake, "--workload", "default", "--policy", "fgd")

    rows = json.loads(result.stdout)
    assert {row["published_pct"] for row in rows if row["table"] == "unallocated"} == {None}
    judged = {(row["bar"], row["met"]) for row in rows if row["table"] == "bar"}
    assert ("fgd as published", None) in judged
    assert "no published results: their columns are empty, and what is held to them is not judged" in result.stderr


@pytest.mark.slow
def test_a_folder_holds_rows_and_curves(lake: Path, tmp_path: Path) -> None:
    result = taut(lake, "--out", str(tmp_path / "out"), "--format", "table")

    assert result.exit_code == 0, result.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rows.json", "curves.parquet"}
    book = json.loads((tmp_path / "out" / "rows.json").read_text())
    assert {row["table"] for row in book["rows"]} == {"unallocated", "bar"}
    assert any("random streams differ from the published ones, so compare means" in note for note in book["notes"])
    runs = pl.read_parquet(tmp_path / "out" / "curves.parquet")
    assert runs.select("workload", "policy", "seed").n_unique() == 6 * 2
    assert "order on default" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--workload", "magic"], 2, "no workload 'magic' in openb; it has default, gpuspec33, own"),
        (["--trace", "philly"], 2, "philly has none of the workloads with published results, but philly"),
        (["--trace", "philly", "--workload", "philly"], 2, "lacks cpu_cores and mem_gib of its machines"),
        (["--trace", "magic"], 1, "magic"),
        (["--policy", "magic"], 2, "'magic' is not one of"),
    ],
)
def test_what_cannot_be_meant_is_refused(lake: Path, arguments: list[str], exit_code: int, said: str) -> None:
    result = taut(lake, *arguments)

    assert result.exit_code == exit_code
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_a_cluster_without_gpus_is_refused(tmp_path: Path) -> None:
    folder = tiny_openb(tmp_path / "from", "default")
    (folder / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,0,\n")
    ingest("openb", folder, tmp_path / "lake")

    result = taut(tmp_path / "lake")

    assert result.exit_code == 2
    assert "no machine with one" in result.stderr


def test_all_placements_see_the_same_arrivals_and_seeds_differ(lake: Path) -> None:
    with Lake(lake) as opened:
        pods = pod_list(opened, "openb", "default")
    first, *same = (pl.DataFrame(filled_up(policy, 1, pods=pods)) for policy in POLICIES)
    other = pl.DataFrame(filled_up("fgd", 2, pods=pods))

    assert len(pods.units) == 40
    assert all(each["arrived_pct"].equals(first["arrived_pct"]) for each in same)
    assert not other["arrived_pct"].equals(first["arrived_pct"])
    assert first["unallocated_pct"].is_between(0.0, 100.0).all()

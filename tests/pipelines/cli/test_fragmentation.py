"""`taut simulate` on shared GPUs: what a placement against fragmentation aims at, what it comes to, what is said."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.lake.ingest import ingest
from scheduler_core.placement import AIMING
from tests.pipelines.cli.simulating import command

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
HOUR_S = 3600
GPUS = {"a": 2, "b": 2, "c": 1, "d": 1}
# Parts of one GPU first, then pairs: only who knows of them keeps the machines with two GPUs free.
PARTS = [
    f"h{at},1000,1024,1,{(250, 500, 750)[at % 3]},{'T4' if at % 2 else ''},LS,Succeeded,{60 * at},{60 * at + HOUR_S},"
    f"{60 * at}"
    for at in range(8)
]
PAIRS = [
    f"w{at},1000,1024,2,1000,,LS,Succeeded,{480 + 60 * at},{480 + 60 * at + HOUR_S},{480 + 60 * at}" for at in range(4)
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fragmentation")
    (folder / "from").mkdir()
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *(f"{name},64000,262144,{gpus},T4" for name, gpus in GPUS.items())]
    (folder / "from" / "openb_node_list_gpu_node.csv").write_text("\n".join(nodes) + "\n")
    (folder / "from" / "openb_pod_list_default.csv").write_text("\n".join([HEADER, *PARTS, *PAIRS]) + "\n")
    ingest("openb", folder / "from", folder / "lake")
    return folder / "lake"


def taut(lake: Path, *arguments: str) -> Result:
    fixed = ["--lake", str(lake), "--trace", "openb", "--arrivals", "recorded", "--format", "json"]
    return CliRunner().invoke(app, command(lake.parent, *fixed, *arguments))


def row_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    [row] = json.loads(result.stdout)
    return dict(row)


@pytest.mark.parametrize(
    ("placement", "options", "said"),
    [
        *((placement, (), "aims at the last 10000 arrivals, updated at every arrival") for placement in AIMING),
        ("fgd", ("target = 'trace'",), "aims at all jobs of the run, known in advance (an oracle)"),
        ("fgd", ("popularity = 0.3",), "aims at the most frequent specs of 30 % of the last 10000 arrivals"),
    ],
)
def test_what_a_placement_aims_at_is_said_and_kept(
    lake: Path, tmp_path: Path, placement: str, options: tuple[str, ...], said: str
) -> None:
    result = taut(lake, "--placement", placement, *options, "--out", str(tmp_path / "out"))

    assert row_of(result)["placement"] == placement
    assert f"{placement} {said}" in result.stderr
    [summary] = (tmp_path / "out").glob("*/simulation.json")
    kept = json.loads(summary.read_text())["settings"]
    assert kept["placement"] == placement
    assert (kept["target"], kept["popularity"]) == (
        "trace" if "target = 'trace'" in options else "online",
        0.3 if "popularity = 0.3" in options else 1.0,
    )


def test_who_knows_all_jobs_places_otherwise(lake: Path, tmp_path: Path) -> None:
    for target in ("online", "trace"):
        row_of(taut(lake, "--placement", "fgd", f"target = '{target}'", "--out", str(tmp_path / target)))

    logs = [tmp_path / target / "requested-any-all-0" / "events.parquet" for target in ("online", "trace")]
    firsts = [pl.read_parquet(log).filter(event="start")["machines"][0] for log in logs]
    assert firsts == ["a:1", "c:1"]


def test_fragmentation_is_measured_where_gpus_are_shared_by_devices(lake: Path, tmp_path: Path) -> None:
    result = taut(lake, "--placement", "fgd", "--out", str(tmp_path / "out"))

    row = row_of(result)
    [folder] = (tmp_path / "out").glob("*/")
    course = pl.read_parquet(folder / "fragmentation.parquet")
    summary = json.loads((folder / "simulation.json").read_text())
    assert summary["files"]["fragmentation.parquet"]["rows"] == course.height
    # Steps are of a minute, and the last pod comes after eleven of them.
    assert course["until_s"][10] == 660.0
    assert row["fragmented_gpus"] == pytest.approx(course["fragmented_gpus"][:11].mean())
    assert summary["metrics"]["fragmented_gpus"] == row["fragmented_gpus"]
    assert 0.0 < row["fragmented_gpus"] < 6.0
    assert "mean until the last submission" in result.stderr
    assert "fragmented_gpus" not in row_of(taut(lake))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), True),
        (("match_gpu_type = true",), False),
        (("--cluster-from", "paper"), False),  # its machines name no type
    ],
)
def test_it_is_said_where_gpu_types_are_not_matched(lake: Path, options: tuple[str, ...], said: bool) -> None:
    result = taut(lake, *options)

    assert result.exit_code == 0, result.stderr
    assert ("GPU types are not matched: 4 of 12 jobs name one" in " ".join(result.stderr.split())) is said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--placement", "fgd", "popularity = 0"), "found the popularity 0, expected a share of pods above 0"),
        (("--placement", "fgd", "popularity = 1.5"), "found the popularity 1.5, expected a share of pods above 0"),
        (("--placement", "fgd", "target = 'magic'"), "simulate: target: "),
        (("target = 'trace'",), "with the placement best_fit, which uses no target"),
        (("--placement", "random", "popularity = 0.5"), "with the placement random, which uses no target"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(lake: Path, arguments: tuple[str, ...], said: str) -> None:
    result = taut(lake, *arguments)

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())

"""`taut simulate` on shared GPUs: what a placement against fragmentation aims at, what it comes to, what is said."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.lake.ingest import ingest
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


@pytest.mark.parametrize("placement", ["fgd"])
def test_fragmentation_is_measured_where_gpus_are_shared_by_devices(lake: Path, tmp_path: Path, placement: str) -> None:
    result = taut(lake, "--placement", placement, "--out", str(tmp_path / "out"))

    row = row_of(result)
    assert row["placement"] == placement
    assert f"{placement} aims at the last 10000 arrivals, updated at every arrival" in result.stderr
    [summary] = (tmp_path / "out").glob("*/simulation.json")
    kept = json.loads(summary.read_text())
    assert kept["settings"]["placement"] == placement
    assert kept["metrics"]["fragmented_gpus"] == row["fragmented_gpus"]
    assert 0.0 < row["fragmented_gpus"] < 6.0
    assert "mean until the last submission" in result.stderr


def test_pooled_gpus_have_no_fragmentation(lake: Path) -> None:
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

"""`taut simulate` on shared GPUs: what a placement against fragmentation aims at, what it comes to, what is said."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from pipelines.aiming import AIMING
from pipelines.cli import app
from pipelines.cli.simulation_options import TargetOption
from pipelines.ingest import ingest

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
    return CliRunner().invoke(app, ["simulate", *fixed, *arguments])


def row_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    [row] = json.loads(result.stdout)
    return dict(row)


def test_targets_can_be_named() -> None:
    assert [option.value for option in TargetOption] == ["online", "trace"]


@pytest.mark.parametrize("placement", sorted(AIMING))
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "aims at the last 10000 arrivals, learnt as they come"),
        (("--target", "trace"), "aims at all jobs of the run, known beforehand (an oracle)"),
        (("--popularity", "0.3"), "aims at the most frequent specs of 30 % of the last 10000 arrivals"),
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
        "trace" if "trace" in options else "online",
        0.3 if "0.3" in options else 1.0,
    )


def test_who_knows_all_jobs_places_otherwise(lake: Path, tmp_path: Path) -> None:
    for target in ("online", "trace"):
        row_of(taut(lake, "--placement", "fgd", "--target", target, "--out", str(tmp_path / target)))

    logs = [tmp_path / target / "requested-any-all-0" / "events.parquet" for target in ("online", "trace")]
    firsts = [pl.read_parquet(log).filter(event="start")["machines"][0] for log in logs]
    assert firsts == ["a:1", "c:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--placement", "fgd", "--popularity", "0"), "found the popularity 0, expected a share of pods above 0"),
        (("--placement", "fgd", "--popularity", "1.5"), "found the popularity 1.5, expected a share of pods above 0"),
        (("--placement", "fgd", "--target", "magic"), "'magic' is not one of"),
        (("--target", "trace"), "beside the placement best_fit, which looks at none"),
        (("--placement", "random", "--popularity", "0.5"), "beside the placement random, which looks at none"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(lake: Path, arguments: tuple[str, ...], said: str) -> None:
    result = taut(lake, *arguments)

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())

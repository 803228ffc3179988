"""The frame of studies: options made from a config, rows and intervals, the folder of results, tasks in their order."""

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from pipelines.cli.options import DEMO_LAKE, engine_of
from pipelines.cli.study import study_command
from pipelines.engine.engine import Local, Processes
from pipelines.errors import BadUsage
from pipelines.studies.compare import compare, paired
from pipelines.studies.study import Context, Findings, Study, option, seed_option, write


class Shape(StrEnum):
    ROUND = "round"
    FLAT = "flat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    loads: tuple[float, ...] = option((0.7, 0.9), name="--load", help="Loads.", minimum=0.1, maximum=1.5)
    kinds: tuple[Literal["a", "b"], ...] = option((), name="--kind", help="Kinds.")
    shape: Shape = option(Shape.ROUND, help="Shape.")
    limit_s: float | None = option(None, help="Limit.")
    detail: bool = option(False, help="Detail.")
    seed: int = seed_option(3)


def findings(config: Config, context: Context) -> Findings:
    context.talk("running")
    row = {name: str(getattr(config, name)) for name in ("loads", "kinds", "shape", "limit_s", "detail", "seed")}
    return Findings(study="tiny", trace="toy", tables={"config": [{**row}]}, notes=(type(context.engine).__name__,))


def app_of(study: Study[Config], about: str) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(study_command(study, about, "pai"))
    return app


def taut(*arguments: str) -> tuple[int, str, str]:
    study = Study(name="tiny", config=Config, run=findings, arms={"one": "the only arm"}, takes=("engine",))
    result = CliRunner().invoke(app_of(study, "A tiny study."), list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_fields_of_a_config_are_options_with_their_types_and_defaults() -> None:
    code, out, err = taut("--format", "json", "--processes", "2")
    (row,) = json.loads(out)

    assert (code, err) == (0, "running\nnote: Processes\n")
    assert row == {
        "study": "tiny",
        "trace": "toy",
        "table": "config",
        "loads": "(0.7, 0.9)",
        "kinds": "()",
        "shape": "round",
        "limit_s": "None",
        "detail": "False",
        "seed": "3",
    }


def test_options_are_read_repeated_and_bounded() -> None:
    repeated = ["--load", "1", "--kind", "b", "--kind", "a"]
    given = [*repeated, "--shape", "flat", "--limit-s", "2", "--detail", "--seed", "5"]
    (row,) = json.loads(taut(*given, "--format", "json")[1])

    assert (row["loads"], row["kinds"], row["shape"], row["seed"]) == ("(1.0,)", "('b', 'a')", "flat", "5")
    assert (row["limit_s"], row["detail"]) == ("2.0", "True")
    assert [taut(*bad)[0] for bad in (("--load", "9"), ("--kind", "c"), ("--shape", "x"), ("--lake", "."))] == [2] * 4


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_number_that_is_not_finite_is_refused(value: str) -> None:
    study = Study(name="tiny", config=Config, run=findings)
    result = CliRunner().invoke(app_of(study, "A tiny study."), ["--limit-s", value])

    assert isinstance(result.exception, BadUsage)
    assert str(result.exception) == f"--limit-s: found {value}, expected a finite number"


def test_a_study_that_reads_no_lake_opens_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAUT_LAKE", raising=False)
    monkeypatch.chdir(tmp_path)
    DEMO_LAKE.mkdir(parents=True)

    code, _, err = taut()

    assert code == 0
    assert "the demo's" not in err


def test_the_help_names_options_and_arms() -> None:
    out = taut("--help")[1]

    assert all(said in out for said in ("A tiny study.", "one: the only arm", "--load", "--processes", "--out"))


def test_a_folder_that_holds_anything_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")

    result = CliRunner().invoke(app_of(Study(name="t", config=Config, run=findings), "x"), ["--out", str(tmp_path)])

    assert "found files in it" in str(result.exception)
    assert "running" not in result.stderr


def test_a_folder_holds_rows_without_nan_and_the_claims_first(tmp_path: Path) -> None:
    row: dict[str, object] = {"wait_s": math.nan}
    found = Findings(
        study="s",
        trace="t",
        tables={"waits": [row]},
        claims=({"met": True},),
        frames={"runs": pl.DataFrame({"a": [1]})},
    )

    paths = write(found, tmp_path / "out")

    assert [path.name for path in paths] == ["rows.json", "runs.parquet"]
    rows = json.loads(paths[0].read_text())["rows"]
    assert [(each["table"], each.get("wait_s")) for each in rows] == [("claims", None), ("waits", None)]


def multiplied(arm: int, seed: int) -> dict[str, object]:
    return {"value": arm * seed}


def test_arms_are_compared_seed_by_seed_the_same_on_any_engine() -> None:
    arms, seeds = {"a": 2, "b": 3}, [5, 7, 9]

    frames = [compare(arms, seeds, multiplied, engine=engine) for engine in (Local(), Processes(2))]

    assert frames[0].rows() == [(arm, seed, arms[arm] * seed) for seed in seeds for arm in arms]
    assert frames[1].equals(frames[0])


def test_pairs_are_in_order_of_seeds_and_leave_out_columns_that_an_arm_lacks() -> None:
    runs = pl.DataFrame(
        {"arm": ["a", "b", "b", "a"], "seed": [1, 2, 1, 2], "x": [1.0, 4.0, 3.0, 2.0], "y": [None, 4.0, 3.0, None]}
    )
    [(_, arms)] = paired(runs)

    assert {arm: {name: each.tolist() for name, each in of.items()} for arm, of in arms.items()} == {
        "a": {"x": [1.0, 2.0]},
        "b": {"x": [3.0, 4.0], "y": [3.0, 4.0]},
    }


def test_a_study_runs_here_with_one_process_or_the_engine_local_and_a_scheduler_needs_dask() -> None:
    for options in (["--processes", "1"], ["--engine", "local"]):
        assert "note: Local\n" in taut(*options)[2]
    with pytest.raises(BadUsage, match="needs --engine dask"):
        engine_of("processes", "tcp://127.0.0.1:1", 2)

"""`taut retrain`: one line of JSON, an exit code for each outcome, and one run at a time."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.cli.options import Place
from pipelines.cli.training import LOCK
from pipelines.errors import TrainingError
from pipelines.models import renewal
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting
from pipelines.models.recipes import Recipe
from pipelines.models.renewal import Decision
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import promote, track, versions
from tests.pipelines.models.conftest import T0, make_jobs
from tests.pipelines.statistics.lakes import make_lake

NAME = "runtime.made.ctr"


def registry_of(lake: Path) -> str:
    return f"sqlite:///{lake.parent}/mlflow.db"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "TAUT_TRACE", "TAUT_LAKE", "TAUT_BUNDLES"):
        monkeypatch.delenv(name, raising=False)
    make_lake(tmp_path / "lake", {"jobs": make_jobs(300, 2).to_dicts()}, trace="made")
    return tmp_path / "lake"


def retrained(lake: Path, *options: str) -> tuple[Result, dict[str, Any]]:
    result = CliRunner().invoke(app, ["retrain", "--trace", "made", "--lake", str(lake), "--threads", "1", *options])
    [line] = result.stdout.splitlines()
    return result, json.loads(line)


@pytest.mark.parametrize(
    ("outcomes", "outcome", "code"),
    [
        (["kept", "promoted"], "promoted", 0),
        (["rolled_back", "kept"], "rolled_back", 0),
        (["rolled_back", "promoted"], "promoted", 0),
        (["kept", "kept"], "kept", 3),
        ([], "kept", 3),
    ],
)
def test_the_outcome_is_one_line_and_an_exit_code(
    lake: Path, monkeypatch: pytest.MonkeyPatch, outcomes: list[Any], outcome: str, code: int
) -> None:
    made = [Decision(model=f"runtime.made.ctr@{i}", outcome=each, why="so") for i, each in enumerate(outcomes)]
    monkeypatch.setattr(renewal, "renew", lambda *_, **__: made)

    result, line = retrained(lake)

    assert (result.exit_code, line["outcome"], line["trace"]) == (code, outcome, "made")
    assert [each["outcome"] for each in line["models"]] == outcomes


def test_a_second_run_is_refused_while_one_is_running(lake: Path) -> None:
    lock = Place(lake=lake, tracking_uri="http://registry", bundles=lake).beside_registry(LOCK)
    holder = (
        "import sys; from pathlib import Path; from pipelines.lake.storage import exclusive\n"
        "with exclusive(Path(sys.argv[1]), RuntimeError()): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        busy, line = retrained(lake, "--check-drop")
        other.kill()
        other.wait()
        after, _ = retrained(lake, "--check-drop")

    assert (busy.exit_code, line["outcome"]) == (4, "busy")
    assert str(lock) in line["why"]
    assert after.exit_code == 1  # a killed run leaves no lock behind; nothing is registered yet


def test_a_failure_is_a_line_too(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise TrainingError("too few jobs\nand more")

    monkeypatch.setattr(renewal, "renew", fails)

    result, line = retrained(lake)

    assert (result.exit_code, line["outcome"], line["why"]) == (1, "failed", "too few jobs")
    assert result.stderr.strip().startswith("taut: too few jobs")


def test_the_lock_lies_beside_the_database_of_the_registry(tmp_path: Path) -> None:
    place = Place(lake=tmp_path / "lake", tracking_uri=f"sqlite:///{tmp_path}/registry/mlflow.db", bundles=tmp_path)

    assert place.beside_registry(LOCK) == tmp_path / "registry" / LOCK


@pytest.mark.slow
def test_a_run_promotes_the_newer_model_and_then_has_too_few_new_jobs_to_check_it(lake: Path) -> None:
    first, promoted = retrained(lake, "--until", (T0 + timedelta(days=10)).strftime("%Y-%m-%d"))
    again, _ = retrained(lake)
    checked, line = retrained(lake, "--check-drop")

    [old, new] = versions(uri=registry_of(lake), name=NAME)
    assert (first.exit_code, promoted["outcome"], again.exit_code) == (0, "promoted", 0)
    assert (new.aliases, new.replaced, old.seen) == (("challenger", "champion"), 1, new.seen)
    assert (checked.exit_code, line["models"][0]["jobs"]) == (3, 0)
    assert "0 new jobs ended, expected at least 200" in line["models"][0]["why"]


@pytest.mark.slow
def test_a_promotion_that_did_harm_is_undone_in_the_registry(lake: Path) -> None:
    early = make_jobs(300, 2)
    setting = Setting(jobs=early, trace="made", until=T0 + timedelta(days=20))
    good = train_runtime(setting, "ctr", Recipe(boosting=Boosting(rounds=10)))
    for model in (good, replace(good, offsets={"p50": 3.0, "p90": 3.0})):
        version = track(model, uri=registry_of(lake), seen=T0 + timedelta(days=41))
        promote(NAME, uri=registry_of(lake), version=version.version, force=True)
    later = make_jobs(700, 3, span_days=80.0).filter(pl.col("submit_ts") > T0 + timedelta(days=42))
    make_lake(
        lake, {"jobs": pl.concat([early, later.with_columns(job_id="l" + pl.col("job_id"))]).to_dicts()}, trace="made"
    )

    undone, line = retrained(lake, "--check-drop")
    again, _ = retrained(lake, "--check-drop")

    [decision] = line["models"]
    assert (undone.exit_code, line["outcome"], decision["model"]) == (0, "rolled_back", f"{NAME}@2")
    assert decision["jobs"] == later.height
    assert decision["lead_hi"] < 0
    assert [each.aliases for each in versions(uri=registry_of(lake), name=NAME)] == [("champion",), ("challenger",)]
    assert again.exit_code == 3

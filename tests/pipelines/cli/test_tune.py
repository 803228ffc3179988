"""`taut tune`: a recipe for `taut train`, through an interrupt and through a kill."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.models import tuning
from pipelines.models.evaluate import Task
from pipelines.models.judging import Interval
from pipelines.models.recipes import Recipe, read_recipes
from pipelines.models.tuning import Best, Progress
from tests.pipelines.models.conftest import make_jobs
from tests.pipelines.statistics.lakes import make_lake

NAME = "runtime.made.ctr"
STATE = Progress(finished=7, pruned=2, best=0.4, default=0.5)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "TAUT_TRACE", "TAUT_LAKE", "TAUT_BUNDLES"):
        monkeypatch.delenv(name, raising=False)
    make_lake(tmp_path / "lake", {"jobs": make_jobs(300, 2).to_dicts()}, trace="made")
    return tmp_path / "lake"


def arguments(lake: Path, out: str, *options: str) -> list[str]:
    place = ["--lake", str(lake), "--out", str(lake.parent / out), "--study-db", str(lake.parent / f"{out}.db")]
    return ["tune", "--trace", "made", *place, "--threads", "1", "--format", "json", *options]


def test_an_interrupt_says_what_is_stored_and_how_to_go_on(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, report: Any, **__: object) -> None:
        report(STATE)
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "search", interrupted)

    result = CliRunner().invoke(app, arguments(lake, "recipe.json"))

    said = f"7 trials of {NAME} are stored in {lake.parent}/recipe.json.db; run the same command to go on"
    assert (result.exit_code, result.stdout, result.stderr.splitlines()[-1]) == (130, "", said)
    assert not (lake.parent / "recipe.json").exists()


def test_trials_lie_beside_the_registry_unless_a_database_is_named(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    databases: list[Path] = []

    def noted(task: object, database: Path, **_: object) -> None:
        databases.append(database)
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "search", noted)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{lake.parent}/registry/mlflow.db")
    for options in ([], ["--study-db", "mine.db"]):
        CliRunner().invoke(app, ["tune", "--trace", "made", "--lake", str(lake), *options])

    assert databases == [lake.parent / "registry" / "tune.db", Path.cwd() / "mine.db"]


def test_a_file_that_cannot_be_written_is_refused_before_the_search(lake: Path) -> None:
    result = CliRunner().invoke(app, arguments(lake, "absent/recipe.json"))

    assert result.exit_code == 2
    assert "found no folder to write this file to" in result.stderr


@pytest.mark.parametrize(
    ("inner", "later", "result"),
    [(0.1, 0.1, "tuned"), (0.1, 0.0, "default kept"), (0.1, -0.1, "default kept"), (0.0, 0.1, "default kept")],
)
def test_a_recipe_is_taken_if_it_leads_beyond_noise_also_on_jobs_that_the_search_has_not_seen(
    lake: Path, monkeypatch: pytest.MonkeyPatch, inner: float, later: float, result: str
) -> None:
    tuned = replace(Recipe(), half_life_days=7.0)

    def found(task: Task, *_: object, **__: object) -> Best:
        counts = task.counts(task.folds)
        return Best(recipe=tuned, best=counts * (0.5 - inner), default=counts * 0.5, progress=STATE)

    monkeypatch.setattr(tuning, "search", found)
    monkeypatch.setattr(tuning, "checked_lead", lambda *_: Interval(value=later, lo=later, hi=later))

    said = CliRunner().invoke(app, arguments(lake, "recipe.json"))

    [row] = json.loads(said.stdout)
    [recipe] = read_recipes(lake.parent / "recipe.json", "made").values()
    assert (row["result"], row["best"]) == (result, "half_life_days=7")
    assert row["lead_lo"] == pytest.approx(inner)
    assert row["check_lead"] == later
    assert recipe == (tuned if result == "tuned" else Recipe())
    assert ("no trial beats the default beyond noise" in said.stderr) == (result == "default kept")


KILLED = """
import sys
from pipelines.cli import app
from pipelines.models.evaluate import Task

fold_loss, fits = Task.fold_loss, iter(range(99))

def held(self, *arguments):
    if next(fits) == 7:
        print("in the third trial", flush=True)
        sys.stdin.read()
    return fold_loss(self, *arguments)

Task.fold_loss = held
app(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_killed_search_goes_on_and_trains_what_it_found(lake: Path) -> None:
    whole = CliRunner().invoke(app, arguments(lake, "whole.json", "--trials", "4"))
    command = [sys.executable, "-c", KILLED, *arguments(lake, "killed.json", "--trials", "4")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "in the third trial\n"
        first.kill()
    again = CliRunner().invoke(app, arguments(lake, "killed.json", "--trials", "4"))
    trained = CliRunner().invoke(
        app, ["train", "--lake", str(lake), "--recipe", str(lake.parent / "killed.json"), "--format", "json"]
    )

    studies = [
        optuna.load_study(study_name=None, storage=f"sqlite:///{lake.parent}/{n}.json.db") for n in ("whole", "killed")
    ]
    made = [
        [(t.params, t.intermediate_values) for t in study.trials if t.state.name in {"COMPLETE", "PRUNED"}]
        for study in studies
    ]
    assert first.returncode == -9
    assert (whole.exit_code, again.exit_code, trained.exit_code) == (0, 0, 0), again.stderr + trained.stderr
    assert len(made[0]) == 4
    assert made[1] == made[0]
    assert [t.state.name for t in studies[1].trials].count("FAIL") == 1
    assert again.stdout == whole.stdout
    assert (lake.parent / "killed.json").read_bytes() == (lake.parent / "whole.json").read_bytes()
    [row] = json.loads(again.stdout)
    [recipe] = read_recipes(lake.parent / "killed.json", "made").values()
    assert (row["model"], row["trials"]) == (NAME, 4)
    assert (row["result"] == "tuned") == (recipe != Recipe()) == (row["lead_lo"] > 0 and row["check_lo"] > 0)

"""Training all models of a trace: each run-time model gets its recipe, and registered versions say what was known."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from features.tables import TABLES
from pipelines.errors import TrainingError
from pipelines.models import retrain
from pipelines.models.fitted import Recipe
from pipelines.models.training_tables import Tables
from pipelines.models.units import Unit
from tests.pipelines.models.conftest import T0, make_jobs

JOBS = make_jobs(60, 1)
TUNED = replace(Recipe(), half_life_days=7.0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe | None, str]]:
    """Return the list to which training adds the recipe and the type of each model; the type `few` is refused."""
    calls: list[tuple[Recipe | None, str]] = []

    def train(_: object, __: object, asked: list[Unit], ___: object) -> list[Any]:
        calls.extend((unit.recipe, unit.task_type) for unit in asked)
        return [
            TrainingError("too few")
            if unit.task_type == "few"
            else SimpleNamespace(name=f"runtime.made.{unit.task_type}", record=None)
            for unit in asked
        ]

    monkeypatch.setattr(retrain, "train_units", train)
    monkeypatch.setattr(retrain, "track", lambda model, *, uri, seen, picture: (model.name, uri, seen))
    return calls


def run(jobs: pl.DataFrame, **options: Any) -> list[Any]:
    tables = Tables(jobs=jobs, usage=TABLES["usage"].create_empty())
    return [each.version for each in retrain.retrain(tables, "made", uri="there", **options)]


def test_each_model_is_trained_with_its_recipe(trained: list[tuple[Recipe | None, str]]) -> None:
    versions = run(JOBS, types=["ctr", "nlp", "cv"], recipes={"runtime.made.nlp": TUNED, "runtime.other.cv": TUNED})

    assert trained == [(Recipe(), "ctr"), (TUNED, "nlp"), (Recipe(), "cv")]
    assert [name for name, _, _ in versions] == ["runtime.made.ctr", "runtime.made.nlp", "runtime.made.cv"]


def test_without_types_and_recipes_every_type_gets_the_default(trained: list[tuple[Recipe | None, str]]) -> None:
    run(pl.concat([JOBS, JOBS[:9].with_columns(task_type=pl.lit("nlp"))]))

    assert trained == [(Recipe(), "ctr"), (Recipe(), "nlp")]


def test_a_type_with_too_few_jobs_does_not_stop_the_others(trained: list[tuple[Recipe | None, str]]) -> None:
    versions = run(JOBS, types=["ctr", "few"], recipes={"runtime.made.few": TUNED})

    assert [name for name, _, _ in versions] == ["runtime.made.ctr"]
    with pytest.raises(TrainingError, match="too few"):
        run(JOBS, types=["few"])


def test_a_version_records_the_latest_event_in_the_data(trained: list[tuple[Recipe | None, str]]) -> None:
    late = T0 + timedelta(days=99)
    open_job = JOBS[:1].with_columns(job_id=pl.lit("late"), submit_ts=pl.lit(late).cast(JOBS.schema["submit_ts"]))

    [(_, uri, seen)] = run(pl.concat([JOBS, open_job]))

    assert (uri, seen) == ("there", late)
    assert Tables(jobs=JOBS[:0], usage=JOBS[:0]).seen is None

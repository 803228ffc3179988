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
from tests.pipelines.models.conftest import T0, make_jobs

JOBS = make_jobs(60, 1)
TUNED = replace(Recipe(), half_life_days=7.0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe, list[str]]]:
    """Return the list to which training adds the recipe and the types of each call; the type `few` is refused."""
    calls: list[tuple[Recipe, list[str]]] = []

    def train(*_: object, recipe: Recipe, types: list[str], **__: object) -> list[Any]:
        calls.append((recipe, types))
        if types == ["few"]:
            raise TrainingError("too few")
        return [SimpleNamespace(name=f"runtime.made.{each}", record=None) for each in types]

    monkeypatch.setattr(retrain, "train_runtime", train)
    monkeypatch.setattr(retrain, "track", lambda model, *, uri, seen, picture: (model.name, uri, seen))
    return calls


def run(jobs: pl.DataFrame, **options: Any) -> list[Any]:
    tables = Tables(jobs=jobs, usage=TABLES["usage"].create_empty())
    return [each.version for each in retrain.retrain(tables, "made", uri="there", **options)]


def test_models_with_the_same_recipe_are_trained_in_one_call(trained: list[tuple[Recipe, list[str]]]) -> None:
    versions = run(JOBS, types=["ctr", "nlp", "cv"], recipes={"runtime.made.nlp": TUNED, "runtime.other.cv": TUNED})

    assert trained == [(Recipe(), ["ctr", "cv"]), (TUNED, ["nlp"])]
    assert [name for name, _, _ in versions] == ["runtime.made.ctr", "runtime.made.cv", "runtime.made.nlp"]


def test_without_types_and_recipes_every_type_gets_the_default(trained: list[tuple[Recipe, list[str]]]) -> None:
    run(pl.concat([JOBS, JOBS[:9].with_columns(task_type=pl.lit("nlp"))]))

    assert trained == [(Recipe(), ["ctr", "nlp"])]


def test_a_type_with_too_few_jobs_does_not_stop_the_others(trained: list[tuple[Recipe, list[str]]]) -> None:
    versions = run(JOBS, types=["ctr", "few"], recipes={"runtime.made.few": TUNED})

    assert [name for name, _, _ in versions] == ["runtime.made.ctr"]
    with pytest.raises(TrainingError, match="too few"):
        run(JOBS, types=["few"])


def test_a_version_records_the_latest_event_in_the_data(trained: list[tuple[Recipe, list[str]]]) -> None:
    late = T0 + timedelta(days=99)
    open_job = JOBS[:1].with_columns(job_id=pl.lit("late"), submit_ts=pl.lit(late).cast(JOBS.schema["submit_ts"]))

    [(_, uri, seen)] = run(pl.concat([JOBS, open_job]))

    assert (uri, seen) == ("there", late)
    assert Tables(jobs=JOBS[:0], usage=JOBS[:0]).seen is None

"""Training all models of a trace: each gets its recipe, versions say what was known, and engines give equal bytes.

`tests.benchmarks.faults` trains on Dask, with workers that die.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import polars as pl
import pytest

from features.tables import TABLES
from pipelines.engine.engine import Engine, Local
from pipelines.errors import TrainingError
from pipelines.models import retrain
from pipelines.models.boosting import Boosting
from pipelines.models.evaluate import Evaluation
from pipelines.models.examples import Setting
from pipelines.models.model import write_model
from pipelines.models.recipes import Recipe
from pipelines.models.retrain import Unit, train_units
from pipelines.models.training_tables import Tables
from tests.pipelines.models.conftest import T0, make_jobs
from tests.pipelines.models.test_usage import use_of

JOBS = make_jobs(60, 1)
TUNED = Recipe(half_life_days=7.0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe | None, str]]:
    """Return the list to which training adds the recipe and the type of each model; the type `few` is refused."""
    calls: list[tuple[Recipe | None, str]] = []

    def train(_: object, __: object, units: list[Unit], ___: object) -> list[Any]:
        calls.extend((unit.recipe, unit.task_type) for unit in units)
        made = [SimpleNamespace(name=f"runtime.made.{unit.task_type}") for unit in units]
        return [TrainingError("too few") if each.name.endswith("few") else each for each in made]

    monkeypatch.setattr(retrain, "train_units", train)
    monkeypatch.setattr(retrain, "track", lambda model, *, uri, seen: (model.name, uri, seen))
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


# Models trained from copies of their data, as on several engines, are equal to the byte.

CUT = T0 + timedelta(days=30)
QUICK = Recipe(boosting=Boosting(rounds=25, patience=8, learning_rate=0.15, max_depth=4))
BOTH = pl.concat(
    [make_jobs(300, 1), make_jobs(160, 2, task_type="nlp").with_columns(job_id="n" + pl.col("job_id"))],
)
SETTING = Setting(jobs=BOTH, usage=use_of(BOTH), trace="made", until=CUT)
UNITS = [
    *(Unit(kind="runtime", task_type=each, recipe=QUICK) for each in ("ctr", "nlp", "none")),
    *(Unit(kind="usage", task_type=each) for each in ("ctr", "nlp")),
]


def digests(engine: Engine, folder: Path) -> list[str]:
    """Train on an engine; return the digest of each model's bundle, or the reason why there is none."""
    return [
        str(each) if isinstance(each, TrainingError) else write_model(each, folder / f"{n}", created=CUT)
        for n, each in enumerate(train_units(engine, replace(SETTING), UNITS))
    ]


class Copying:
    """An engine of one process that copies work, data and results as engines of several processes do."""

    def run(self, work: Callable[[Any, Any], Any], shared: Any, units: Sequence[Any]) -> Iterator[Any]:
        copied = [cloudpickle.loads(cloudpickle.dumps((work, shared, unit))) for unit in units]
        return (cloudpickle.loads(cloudpickle.dumps(each(data, unit))) for each, data, unit in copied)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_models_and_evaluations_from_copies_are_equal(tmp_path: Path) -> None:
    local = digests(Local(), tmp_path / "local")
    evaluation = Evaluation(setting=replace(SETTING, usage=None), recipe=QUICK)
    here, there = (evaluation.run(engine=each) for each in (Local(), Copying()))

    assert len(set(local)) == len(UNITS)
    assert digests(Copying(), tmp_path / "copies") == local
    assert here.equals(there)
    assert here["task_type"].n_unique() == 2

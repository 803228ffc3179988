"""Models trained from copies of their data, as on several engines, are equal to the byte.

`tests.benchmarks.faults` trains on Dask, with workers that die.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import polars as pl
import pytest

from pipelines.engine.engine import Engine, Local
from pipelines.errors import TrainingError
from pipelines.models.boosting import Boosting
from pipelines.models.evaluate import evaluate
from pipelines.models.fitted import Recipe
from pipelines.models.model import write_model
from pipelines.models.training_tables import Tables
from pipelines.models.units import Setting, Unit, train_units
from tests.pipelines.models.conftest import T0, make_jobs
from tests.pipelines.models.test_usage import use_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
CUT = T0 + timedelta(days=30)
QUICK = Recipe(boosting=Boosting(rounds=25, patience=8, learning_rate=0.15, max_depth=4))
OTHERS = make_jobs(160, 2, task_type="nlp").with_columns(job_id="n" + pl.col("job_id"))
JOBS = pl.concat([make_jobs(300, 1), OTHERS])
SETTING = Setting(tables=Tables(jobs=JOBS, usage=use_of(JOBS)), trace="made", by="kind", until=CUT, seed=0, threads=1)
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


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    found = digests(Local(), tmp_path_factory.mktemp("local"))
    assert len(set(found)) == len(UNITS)
    return found


class Copying:
    """An engine of one process that copies work, data and results as engines of several processes do."""

    def run(self, work: Callable[[Any, Any], Any], shared: Any, units: Sequence[Any]) -> Iterator[Any]:
        copied = [cloudpickle.loads(cloudpickle.dumps((work, shared, unit))) for unit in units]
        return (cloudpickle.loads(cloudpickle.dumps(each(data, unit))) for each, data, unit in copied)


def test_models_trained_from_copies_are_equal(local: list[str], tmp_path: Path) -> None:
    assert digests(Copying(), tmp_path) == local


def test_an_evaluation_by_units_that_were_copied_is_equal() -> None:
    common = {"trace": "made", "until": CUT, "recipe": QUICK}
    here, there = (evaluate(JOBS, None, engine=each, **common) for each in (Local(), Copying()))

    assert here.equals(there)
    assert here["task_type"].n_unique() == 2

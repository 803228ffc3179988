"""Kill -9 Dask workers at seeded moments of a unit: lake and models must equal local ones, and only units repeat.

One cluster of a trace is a unit of an ingest, one model a unit of a training. The jobs are synthetic.
"""

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipelines.engine.engine import Engine
from pipelines.errors import TrainingError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting
from pipelines.models.model import write_model
from pipelines.models.recipes import Recipe
from pipelines.models.retrain import Unit, train_units
from pipelines.models.training_tables import newest_tables
from tests.benchmarks.harness import Row
from tests.benchmarks.made_jobs import MAPPING, write
from tests.pipelines.engine.work import Mortal

WORKERS: Final = 2
CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)
NEWEST: Final = 4_000
"""Jobs of a training."""
CLUSTERS: Final = ("north", "south", "west")
QUICK: Final = Recipe(boosting=Boosting(rounds=50, patience=8, learning_rate=0.15, max_depth=4))
EDGE: Final = 0.05
"""Share of a unit's time at its start and end in which it is not killed, so that most kills fall within."""

Digests = dict[str, str]
Work = Callable[[Engine, Path], Digests]
"""Does a whole job on an engine, with files in an empty folder; returns the digest of each result."""


@dataclass(kw_only=True)
class Timed:
    """Runs units in this process; notes how long each takes."""

    took_s: dict[str, float] = field(default_factory=dict)

    def run(self, work: Callable[[Any, Any], Any], shared: Any, units: Sequence[Any]) -> Iterator[Any]:
        for unit in units:
            began = time.monotonic()
            done = work(shared, unit)
            self.took_s[str(unit)] = time.monotonic() - began
            yield done


def jobs_of_clusters(folder: Path, jobs: int) -> Path:
    """Write jobs of each cluster, half as many of the second and so on, and their mapping; return their folder."""
    for nth, name in enumerate(CLUSTERS):
        table, _ = write(folder / name, jobs // (nth + 1))
        table.replace(folder / f"part-{name}.parquet")
    mapping = MAPPING.replace("[jobs]\n", '[jobs]\nfile = "part-{cluster}.parquet"\n', 1)
    (folder / "mapping.toml").write_text(mapping)
    return folder


def ingested(source: Path) -> Work:
    """Return the ingest of a folder into a lake."""

    def work(engine: Engine, folder: Path) -> Digests:
        with opened_source(source / "mapping.toml", str(source)) as opened:
            ingest(opened.source, opened.folder, folder / "lake", as_name="own", engine=engine, threads=1)
        return held(folder / "lake")

    return work


def held(lake: Path) -> Digests:
    """Return the digest of every file of a lake but its views and the marks of its inputs, which hold paths."""
    files = (path for path in lake.rglob("*") if path.is_file() and path.suffix not in (".duckdb", ".seen"))
    return {str(each.relative_to(lake)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def trained(lake: Path, types: Sequence[str]) -> Work:
    """Return the training of the models of some task types on the jobs of a lake."""
    with Lake(lake) as opened:
        tables = newest_tables(opened, "own", "west", NEWEST)
    units = [Unit(kind="runtime", task_type=each, recipe=QUICK) for each in types]
    units += [Unit(kind="usage", task_type=each) for each in types]

    def work(engine: Engine, folder: Path) -> Digests:
        setting = Setting(jobs=tables.jobs, usage=tables.measured, trace="own")
        found = zip(units, train_units(engine, setting, units), strict=True)
        return {str(unit): _digest(model, folder / str(unit)) for unit, model in found}

    return work


def _digest(model: Any, folder: Path) -> str:  # Any: a trained model, or why there is none
    return str(model) if isinstance(model, TrainingError) else write_model(model, folder, created=CREATED)


def killed(what: str, work: Work, folder: Path, kills: int, seed: int) -> Iterator[Row]:
    """Do a job on Dask once for each kill of the worker that runs a drawn unit; compare with the job done locally."""
    from pipelines.engine.dask_cluster import Dask  # an optional package

    timed, rng = Timed(), random.Random(seed)
    expected = work(timed, _made(folder / "local" / "made"))
    units = sorted(timed.took_s)
    for kill in range(1, kills + 1):
        doomed, share = rng.choice(units), rng.uniform(EDGE, 1.0 - EDGE)
        place = _made(folder / f"kill-{kill}")
        after_s = share * timed.took_s[doomed]
        engine = Mortal(engine=Dask(None, WORKERS), folder=_made(place / "runs"), doomed=doomed, after_s=after_s)
        found = work(engine, _made(place / "made"))
        twice = [each.rpartition("-")[0] for each in engine.ran if not each.endswith("-0")]
        yield {
            "kill": f"{what} {kill}",
            "unit": doomed,
            "at": f"{share:.0%}",
            "within": "no, after it" if engine.late else "yes",
            "repeated": ", ".join(twice),
            "expected": "equal",
            "found": "equal" if found == expected else "differs",
        }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder

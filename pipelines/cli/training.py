"""What `taut train` and `taut retrain` share: the tables and options of a training, and the training itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from pipelines.cli.engines import EngineName, chosen_engine
from pipelines.cli.options import By, local_cut, opened, place_of, say
from pipelines.cli.progress import watched
from pipelines.models.examples import task_types
from pipelines.models.recipes import read_recipes
from pipelines.models.retrain import Retrained, retrain
from pipelines.models.training_tables import Tables, read_tables
from pipelines.report.charts.training import picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options of a training, as given on the command line."""

    cluster: str | None
    until: datetime | None
    by: By
    types: Sequence[str] | None
    feedback: str | None
    newest: int
    recipe: Path | None
    seed: int
    threads: int | None
    engine: EngineName = EngineName.LOCAL
    scheduler: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The trace and tables to train on; `run` trains, tracks and registers the models."""

    trace: str
    tables: Tables
    run: Callable[[], list[Retrained]]


def read_training(lake: str | Path | None, trace: str | None, choices: Choices) -> Training:
    """Read the recipes and the tables; the lake is closed again before anything is trained."""
    engine, threads = chosen_engine(choices.engine, choices.scheduler, choices.threads)
    with opened(lake, trace) as (source, name):
        recipes = read_recipes(choices.recipe, name)
        tables = read_tables(
            source, name, cluster=choices.cluster, feedback=choices.feedback, newest=choices.newest, talk=say
        )
        cut = local_cut(choices.until, source.manifest(name).zone)
    task_types(tables.jobs, choices.by.value, choices.types)  # refuses wrong names before anything is trained
    run = partial(
        retrain,
        tables,
        name,
        uri=place_of(lake).tracking_uri,
        until=cut,
        by=choices.by.value,
        types=choices.types,
        recipes=recipes,
        seed=choices.seed,
        threads=threads,
        engine=engine,
        draw=picture,
        talk=say,
        watch=watched("training"),
    )
    return Training(trace=name, tables=tables, run=run)

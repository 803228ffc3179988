"""`taut train | evaluate | promote | models | predict`: train models from a lake and use them.

Options and output only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import typer

from pipelines.cli.commands import named
from pipelines.cli.options import (
    FORM,
    FORM_JSON,
    JOBS_FILE,
    LAKE,
    OFFLINE,
    EngineOptions,
    Format,
    InLake,
    Sample,
    WithFeedback,
    emit,
    local_cut,
    place_of,
    say,
    trace_of,
)
from pipelines.errors import BadUsage, RegistryError
from pipelines.options import argument, option

if TYPE_CHECKING:
    from pipelines.models.retrain import Retrained
    from pipelines.models.tracking import ModelVersion
    from pipelines.models.training_tables import Tables

RECIPE: Path | None = option(
    None, "File of recipes, as `taut tune` writes it; run-time models without one get the default."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The trace and tables to train on; `run` trains, tracks and registers the models."""

    trace: str
    tables: "Tables"
    run: "Callable[[], list[Retrained]]"


def tables_of(sample: WithFeedback) -> "tuple[str, Tables, datetime | None]":
    """Return the trace, its tables with the feedback, and the cut in UTC; the lake is closed again."""
    from pipelines.models.training_tables import read_tables

    with sample.opened() as (source, name):
        tables = read_tables(
            source, name, cluster=sample.cluster, feedback=sample.with_feedback, newest=sample.newest, talk=say
        )
        return name, tables, local_cut(sample.until, source.manifest(name).zone)


def read_training(sample: WithFeedback, recipe: Path | None, engine: EngineOptions) -> Training:
    """Read the recipes and the tables; the lake is closed again before anything is trained."""
    from functools import partial

    from pipelines.cli.progress import watched
    from pipelines.models.examples import task_types
    from pipelines.models.recipes import read_recipes
    from pipelines.models.retrain import retrain

    runner, threads = engine.chosen(sample.threads)
    with sample.opened() as (_, trace):
        recipes = read_recipes(recipe, trace)  # refuses a wrong file before the tables are read
    name, tables, cut = tables_of(sample)
    types = sample.types or None
    task_types(tables.jobs, sample.by, types)  # refuses wrong names before anything is trained
    run = partial(
        retrain,
        tables,
        name,
        uri=sample.place().tracking_uri,
        until=cut,
        by=sample.by,
        types=types,
        recipes=recipes,
        seed=sample.seed,
        threads=threads,
        engine=runner,
        talk=say,
        watch=watched("training"),
    )
    return Training(trace=name, tables=tables, run=run)


def train(sample: WithFeedback, engine: EngineOptions, recipe: Path | None = RECIPE, form: Format = FORM) -> None:
    """Train the models of a trace, track them in MLflow, and register each as challenger."""
    from pipelines.models.retrain import next_step

    trained = read_training(sample, recipe, engine).run()
    rows = [each.row() for each in trained]
    if form == "table":  # a line of a table has room only for why a model does not answer alone
        rows = [row | {"why": None} if row["gate"] in ("passed", "better", "level") else row for row in rows]
    emit(rows, form)
    say(next_step(trained))


def evaluate(
    sample: Sample,
    engine: EngineOptions,
    since: datetime | None = option(
        None,
        "Evaluate on the jobs submitted from this day on (the cluster's own time).",
        shown="the latest fifth of the submissions",
    ),
    split: Literal["time", "group"] = option("time", "How rows are held out."),
    form: Format = FORM,
) -> None:
    """Compare the combined forecast with each member and every baseline on held-out jobs, as `taut train` does.

    With --since and without --until, models train on jobs that ended before --since.
    """
    from pipelines.cli.progress import watched
    from pipelines.models.evaluate import Evaluation
    from pipelines.models.examples import Setting
    from pipelines.models.training_tables import newest_tables

    runner, threads = engine.chosen(sample.threads)
    with sample.opened() as (source, name):
        tables = newest_tables(source, name, sample.cluster, sample.newest, say)
        zone = source.manifest(name).zone
        first = local_cut(since, zone)
        setting = Setting(
            jobs=tables.jobs,
            usage=tables.measured,
            trace=name,
            by=sample.by,
            until=local_cut(sample.until, zone) or first,
            seed=sample.seed,
            threads=threads,
        )
        evaluation = Evaluation(setting=setting, split=split, since=first)
        rows = evaluation.run(sample.types or None, engine=runner, watch=watched("evaluating"))
    emit(rows, form)


def promote(
    where: InLake,
    name: str | None = argument(None, "Registered model; without it, all of the trace."),
    version: int | None = option(None, "Version to promote.", shown="the challenger"),
    force: bool = option(False, "Promote even if the gate refused it, with the answer it chose; the tag is kept."),
    rollback: bool = option(False, "Go back to the previous champion; the tag is kept."),
    form: Format = FORM,
) -> None:
    """Make a version the champion, which serves, if the gate lets it.

    A model that is worse than a simple answer, or has too few later jobs, becomes champion only if no champion is
    better or level. Then the answer that the gate chose serves.
    """
    from pipelines.models import tracking

    if name is None and version is not None:
        raise BadUsage("--version needs a model's name, for example runtime.pai.ctr")
    uri = where.place().tracking_uri
    trace = "" if name else trace_of(where.lake, where.trace)
    every = {each.name for each in tracking.versions(uri=uri)} if name is None else ()
    names = [name] if name else sorted(n for n in every if n.startswith((f"runtime.{trace}.", f"usage.{trace}.")))
    if not names:
        raise RegistryError(f"no models of that trace at {uri}; train some with `taut train`")
    moved, refused = [], 0
    for each in names:
        try:
            if rollback:
                moved.append(tracking.rollback(each, uri=uri))
            else:
                moved.append(tracking.promote(each, uri=uri, version=version, force=force))
        except RegistryError as refusal:
            refused += 1
            say(f"taut: {refusal}")
    emit(_version_rows(moved), form)
    if refused:
        raise typer.Exit(1)


def models(lake: Path | None = LAKE, form: Format = FORM) -> None:
    """List the registered models: versions, aliases, verdicts of the gate, and what answers."""
    from pipelines.models import tracking

    emit(_version_rows(tracking.versions(uri=place_of(lake).tracking_uri)), form)


def _version_rows(versions: "Sequence[ModelVersion]") -> list[dict[str, object]]:
    return [
        {
            "name": v.name,
            "version": v.version,
            "aliases": " ".join(v.aliases),
            "gate": v.verdict,
            "answer": v.answer,
            "why": v.reasons,
        }
        for v in versions
    ]


def predict(
    where: InLake,
    jobs: str = JOBS_FILE,
    offline: bool = OFFLINE,
    form: Format = FORM_JSON,
) -> None:
    """Predict run time and peak use of jobs given as JSON lines."""
    from modelserve.calls.predictions import predict as run
    from pipelines.cli.opening import champions, read_jobs

    predictor = champions(where.place(), offline=offline)
    emit(run(read_jobs(jobs), predictor, trace=trace_of(where.lake, where.trace)), form)


COMMANDS: Final = named(train, evaluate, promote, models, predict)

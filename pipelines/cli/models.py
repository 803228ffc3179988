"""`taut train | evaluate | promote | models | predict`: train models from a lake and use them.

Options and output only.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from pipelines.cli.engines import EngineName, EngineOption, Scheduler, chosen_engine
from pipelines.cli.options import (
    By,
    ByOption,
    Cluster,
    Feedback,
    Format,
    FormatOption,
    JobsFile,
    Lake,
    Newest,
    Offline,
    RecipeFile,
    Seed,
    Threads,
    TokenFile,
    Trace,
    TypeOption,
    Until,
    Urls,
    emit,
    local_cut,
    opened,
    place_of,
    say,
    trace_of,
)
from pipelines.models import NEWEST


class SplitOption(StrEnum):
    """How the held-out jobs of an evaluation are chosen: by time, by group of jobs, or at random."""

    TIME = "time"
    GROUP = "group"
    RANDOM = "random"


def train(
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    until: Until = None,
    by: ByOption = By.KIND,
    types: TypeOption = None,
    with_feedback: Feedback = None,
    newest: Newest = NEWEST,
    recipe: RecipeFile = None,
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineOption = EngineName.LOCAL,
    scheduler: Scheduler = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Train the models of a trace, track them in MLflow, and register each as challenger."""
    from pipelines.cli.training import Choices, read_training
    from pipelines.models.retrain import next_step

    choices = Choices(
        cluster=cluster,
        until=until,
        by=by,
        types=types,
        feedback=with_feedback,
        newest=newest,
        recipe=recipe,
        seed=seed,
        threads=threads,
        engine=engine,
        scheduler=scheduler,
    )
    trained = read_training(lake, trace, choices).run()
    rows = [each.row() for each in trained]
    if form is Format.TABLE:  # a line of a table has room only for why a model was refused
        rows = [row | {"why": None} if row["gate"] == "passed" else row for row in rows]
    emit(rows, form)
    say(next_step(trained))


def evaluate(
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Evaluate on the jobs submitted from this day on (the cluster's own time).",
            show_default="the latest fifth of the submissions",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Train only on jobs that ended before this day.",
            show_default="--since",
        ),
    ] = None,
    split: Annotated[SplitOption, typer.Option(help="How rows are held out.")] = SplitOption.TIME,
    by: ByOption = By.KIND,
    types: TypeOption = None,
    newest: Newest = NEWEST,
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineOption = EngineName.LOCAL,
    scheduler: Scheduler = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare the combined forecast with each member and every baseline on held-out jobs, as `taut train` does."""
    from pipelines.cli.progress import watched
    from pipelines.models.evaluate import Evaluation
    from pipelines.models.examples import Setting
    from pipelines.models.training_tables import newest_tables

    runner, each = chosen_engine(engine, scheduler, threads)
    with opened(lake, trace) as (source, name):
        tables = newest_tables(source, name, cluster, newest, say)
        zone = source.manifest(name).zone
        first = local_cut(since, zone)
        setting = Setting(
            jobs=tables.jobs,
            usage=tables.measured,
            trace=name,
            by=by.value,
            until=local_cut(until, zone) or first,
            seed=seed,
            threads=each,
        )
        evaluation = Evaluation(setting=setting, split=split.value, since=first)
        rows = evaluation.run(types, engine=runner, watch=watched("evaluating"))
    emit(rows, form)


def promote(
    name: Annotated[
        str | None, typer.Argument(help="Registered model; without it, all of the trace.", show_default=False)
    ] = None,
    lake: Lake = None,
    trace: Trace = None,
    version: Annotated[int | None, typer.Option(help="Version to promote.", show_default="the challenger")] = None,
    force: Annotated[bool, typer.Option("--force", help="Promote even if the gate failed; the tag is kept.")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the previous champion; the tag is kept.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a version the champion, which serves, if the gate passed it on later jobs."""
    from pipelines.cli.opening import version_rows
    from pipelines.errors import BadUsage, RegistryError
    from pipelines.models import tracking

    if name is None and version is not None:
        raise BadUsage("--version needs a model's name, for example runtime.pai.ctr")
    uri = place_of(lake).tracking_uri
    prefixes = () if name else (f"runtime.{trace_of(lake, trace)}.", f"usage.{trace_of(lake, trace)}.")
    names = [name] if name else sorted({v.name for v in tracking.versions(uri=uri) if v.name.startswith(prefixes)})
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
    emit(version_rows(moved), form)
    if refused:
        raise typer.Exit(1)


def models(lake: Lake = None, form: FormatOption = Format.TABLE) -> None:
    """List the registered models: versions, aliases, and results of the gate."""
    from pipelines.cli.opening import version_rows
    from pipelines.models import tracking

    emit(version_rows(tracking.versions(uri=place_of(lake).tracking_uri)), form)


def predict(
    jobs: JobsFile,
    lake: Lake = None,
    trace: Trace = None,
    offline: Offline = False,
    url: Urls = None,
    token_file: TokenFile = None,
    form: FormatOption = Format.JSON,
) -> None:
    """Predict run time and peak use of jobs given as JSON lines; with --url a running service predicts."""
    from modelserve.calls.offline import predict as run
    from pipelines.cli.opening import champions, read_jobs
    from pipelines.cli.remote import predicted_rows

    if url:
        emit(predicted_rows(read_jobs(jobs), url, token_file, trace=trace), form)
        return
    predictor = champions(place_of(lake), offline=offline)
    emit(run(read_jobs(jobs), predictor, trace=trace_of(lake, trace)), form)


def register(app: typer.Typer) -> None:
    """Add this file's commands to the app."""
    for command in (train, evaluate, promote, models, predict):
        app.command()(command)

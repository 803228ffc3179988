"""`taut tune`: search hyper-parameters of the run-time models inside the training period.

Options, progress and output only.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.cli.engines import EngineName, EngineOption, Scheduler, chosen_engine
from pipelines.cli.options import (
    SQLITE,
    By,
    ByOption,
    Cluster,
    Feedback,
    Format,
    FormatOption,
    Lake,
    Newest,
    Place,
    Seed,
    Threads,
    Trace,
    TypeOption,
    Until,
    emit,
    local_cut,
    opened,
    place_of,
    say,
)
from pipelines.cli.progress import counting_progress
from pipelines.errors import BadUsage
from pipelines.models import NEWEST

if TYPE_CHECKING:
    from pipelines.models.tuning import Judge, Progress, Task, Tuned

STUDY_DB: Final = "tune.db"
INTERRUPTED: Final = 130


def tune(
    trace: Trace = None,
    lake: Lake = None,
    cluster: Cluster = None,
    until: Until = None,
    by: ByOption = By.KIND,
    types: TypeOption = None,
    with_feedback: Feedback = None,
    newest: Newest = NEWEST,
    trials: Annotated[int, typer.Option(help="Trials per model, with those of earlier runs.", min=1, max=10_000)] = 50,
    timeout_min: Annotated[
        float | None,
        typer.Option(help="Minutes per model after which no further trial starts.", min=0.0, show_default=False),
    ] = None,
    study_db: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL", help="Database of the trials.", show_default=f"{STUDY_DB} next to the registry"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="File of recipes to write.")] = Path("recipe.json"),
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineOption = EngineName.LOCAL,
    scheduler: Scheduler = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Search hyper-parameters of the run-time models on cuts inside the training period.

    Trials are stored as they end: after any stop, the same command goes on. The file of recipes is
    for `taut train --recipe`. A model keeps the default unless the best trial beats it beyond noise,
    also on later jobs that the search has not seen. An engine fits the inner cuts of a trial side by side.
    """
    from pipelines.models.recipes import write_recipes
    from pipelines.models.training_tables import read_tables
    from pipelines.models.tuning import judges, tasks_of

    if not out.absolute().parent.is_dir() or out.is_dir():
        raise BadUsage(f"--out {out}: found no folder to write this file to; expected the path of a file in one")
    chosen = chosen_engine(engine, scheduler, threads)
    with opened(lake, trace) as (source, name):
        tables = read_tables(source, name, cluster=cluster, feedback=with_feedback, newest=newest, talk=say)
        cut = local_cut(until, source.manifest(name).zone)
    tasks = tasks_of(tables, name, by=by.value, until=cut, types=types, seed=seed, nthread=chosen.threads)
    store = _store(place_of(lake), study_db)
    with judges(chosen.engine, tasks) as found:
        tuned = [_tuned(*each, store, trials, timeout_min) for each in zip(tasks, found, strict=True)]
    write_recipes(out, {each.task.model: each.recipe for each in tuned})
    emit([each.row() for each in tuned], form)
    if any(each.better for each in tuned):
        say(f"next: taut train --trace {name} --recipe {out}")
    else:
        say(f"no trial beats the default beyond noise: {out} holds the default recipe")


def _store(place: Place, option: str | None) -> str:
    """Return the URL of the database of the trials."""
    if option is not None and "://" in option:
        return option
    return f"{SQLITE}{place.beside_registry(STUDY_DB) if option is None else Path(option).absolute()}"


def _tuned(task: "Task", judge: "Judge", store: str, trials: int, timeout_min: float | None) -> "Tuned":
    """Search one model and show its progress; if interrupted, say what is stored."""
    from modelserve.bundle.quiet import without_password
    from pipelines.models.tuning import tune as run

    shown = without_password(store).removeprefix(SQLITE)
    say(f"tuning {task.model} on {task.judged} jobs after {len(task.folds)} inner cuts; trials in {shown}")
    held = 0
    with counting_progress(trials) as bar:

        def report(state: "Progress") -> None:
            nonlocal held
            held = state.finished
            bar(held, f"{task.model} {state.best:.4f}, default {state.default:.4f}")

        try:
            timeout_s = None if timeout_min is None else 60.0 * timeout_min
            return run(task, store, judge, trials=trials, timeout_s=timeout_s, report=report)
        except KeyboardInterrupt:
            say(f"{held} trials of {task.model} are stored in {shown}; run the same command to go on")
            raise typer.Exit(INTERRUPTED) from None


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(tune)

"""`taut tune`: search hyper-parameters of the run-time models inside the training period.

Options, progress and output only.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from pipelines.cli.commands import named
from pipelines.cli.failures import EXIT_INTERRUPTED
from pipelines.cli.options import FORM, SQLITE, EngineOptions, Format, Place, WithFeedback, emit, local_cut, say
from pipelines.cli.progress import counting_progress
from pipelines.errors import BadUsage
from pipelines.options import option

if TYPE_CHECKING:
    from pipelines.models.tuning import Judge, Progress, Task, Tuned

STUDY_DB: Final = "tune.db"


def tune(
    sample: WithFeedback,
    engine: EngineOptions,
    trials: int = option(50, "Trials per model, with those of earlier runs.", minimum=1, maximum=10_000),
    timeout_min: float | None = option(None, "Minutes per model after which no further trial starts.", minimum=0.0),
    study_db: str | None = option(
        None, "Database of the trials.", metavar="PATH|URL", shown=f"{STUDY_DB} next to the registry"
    ),
    out: Path = option(Path("recipe.json"), "File of recipes to write."),
    form: Format = FORM,
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
    runner, threads = engine.chosen(sample.threads)
    with sample.opened() as (source, name):
        tables = read_tables(
            source, name, cluster=sample.cluster, feedback=sample.with_feedback, newest=sample.newest, talk=say
        )
        cut = local_cut(sample.until, source.manifest(name).zone)
    tasks = tasks_of(
        tables, name, by=sample.by, until=cut, types=sample.types or None, seed=sample.seed, nthread=threads
    )
    store = _store(sample.place(), study_db)
    with judges(runner, tasks) as found:
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
            raise typer.Exit(EXIT_INTERRUPTED) from None


COMMANDS: Final = named(tune)

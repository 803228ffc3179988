"""`taut tune | retrain`: search hyper-parameters of the run-time models, and train on a schedule.

Options, progress, the lock of a schedule, and output only.
"""

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from pipelines.cli.commands import named
from pipelines.cli.failures import EXIT_INTERRUPTED
from pipelines.cli.models import RECIPE, read_training, tables_of
from pipelines.cli.options import (
    FORM,
    EngineOptions,
    Format,
    WithFeedback,
    emit,
    say,
    threads_of,
    trace_of,
)
from pipelines.cli.progress import counting_progress
from pipelines.errors import BadUsage, Busy
from pipelines.options import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.models.evaluate import Task
    from pipelines.models.renewal import Decision
    from pipelines.models.tuning import Progress, Tuned

STUDY_DB: Final = "tune.db"


def tune(
    sample: WithFeedback,
    trials: int = option(50, "Trials per model, with those of earlier runs.", minimum=1, maximum=10_000),
    timeout_min: float | None = option(None, "Minutes per model after which no further trial starts.", minimum=0.0),
    study_db: Path | None = option(None, "Database of the trials.", shown=f"{STUDY_DB} next to the registry"),
    out: Path = option(Path("recipe.json"), "File of recipes to write."),
    form: Format = FORM,
) -> None:
    """Search hyper-parameters of the run-time models on cuts inside the training period.

    Trials are stored as they end: after any stop, the same command goes on. The file of recipes is
    for `taut train --recipe`. A model keeps the default unless the best trial beats it beyond noise,
    also on later jobs that the search has not seen.
    """
    from pipelines.models.evaluate import tasks_of
    from pipelines.models.examples import Setting
    from pipelines.models.recipes import write_recipes

    if not out.absolute().parent.is_dir() or out.is_dir():
        raise BadUsage(f"--out {out}: found no folder to write this file to; expected the path of a file in one")
    name, tables, cut = tables_of(sample)
    setting = Setting(
        jobs=tables.jobs,
        usage=tables.measured,
        trace=name,
        by=sample.by,
        until=cut,
        seed=sample.seed,
        threads=threads_of(sample.threads),
    )
    tasks = tasks_of(setting, sample.types or None)
    database = sample.place().beside_registry(STUDY_DB) if study_db is None else study_db.absolute()
    tuned = [_tuned(each, database, trials, timeout_min) for each in tasks]
    write_recipes(out, {each.task.model: each.recipe for each in tuned})
    emit([each.row() for each in tuned], form)
    if any(each.better for each in tuned):
        say(f"next: taut train --trace {name} --recipe {out}")
    else:
        say(f"no trial beats the default beyond noise: {out} holds the default recipe")


def _tuned(task: "Task", database: Path, trials: int, timeout_min: float | None) -> "Tuned":
    """Tune one model and show the progress; if interrupted, print what is stored."""
    from pipelines.models.tuning import tune as run

    say(f"tuning {task.model} on {task.judged} jobs after {len(task.folds)} inner cuts; trials in {database}")
    held = 0
    with counting_progress() as bar:

        def report(state: "Progress") -> None:
            nonlocal held
            held = state.finished
            bar(f"{task.model} {state.best:.4f}, default {state.default:.4f}", held, trials)

        try:
            timeout_s = None if timeout_min is None else 60.0 * timeout_min
            return run(task, database, trials=trials, timeout_s=timeout_s, report=report)
        except KeyboardInterrupt:
            say(f"{held} trials of {task.model} are stored in {database}; run the same command to go on")
            raise typer.Exit(EXIT_INTERRUPTED) from None


EXIT_CODES: Final = {"promoted": 0, "rolled_back": 0, "kept": 3, "busy": 4}
LOCK: Final = "retrain.lock"


def retrain(
    sample: WithFeedback,
    recipe: Path | None = RECIPE,
    check_drop: bool = option(False, "Only check the last promotions and roll back; do not train."),
) -> None:
    """Retrain on a schedule: roll back a champion that did worse, train, promote what is no worse.

    One line of JSON goes to stdout. Exit codes: 0 a champion changed, 1 failed, 3 all champions
    stay, 4 another run holds the lock.
    """
    from modelserve.bundle.registry import read_version
    from pipelines.lake.storage import exclusive
    from pipelines.models.renewal import renew

    started, place = time.monotonic(), sample.place()
    lock, uri = place.beside_registry(LOCK), place.tracking_uri
    line: dict[str, object] = {"trace": sample.trace, "outcome": "failed"}
    try:
        line["trace"] = trace_of(
            sample.lake, sample.trace
        )  # refuses a folder that is no lake before the lock is made in it
        with exclusive(lock, Busy(f"another `taut retrain` is running and holds {lock}")):
            training = read_training(sample, recipe, EngineOptions())
            decisions = renew(
                training.tables,
                training.trace,
                uri=uri,
                read_version=partial(read_version, uri, place.bundles),
                train=None if check_drop else training.run,
                seed=sample.seed,
                talk=say,
            )
        line["outcome"] = outcome_of(decisions)
        line["models"] = [each.row() for each in decisions]
    except Busy as busy:
        line |= {"outcome": "busy", "why": str(busy)}
    except Exception as error:
        line["why"] = str(error).partition("\n")[0]
        raise
    finally:
        typer.echo(json.dumps({**line, "seconds": round(time.monotonic() - started, 1)}))
    code = EXIT_CODES[str(line["outcome"])]
    if code:
        raise typer.Exit(code)


def outcome_of(decisions: "Sequence[Decision]") -> str:
    """Return the outcome of a run: `promoted` if any model was, else `rolled_back` if any was, else `kept`."""
    found = {each.outcome for each in decisions}
    return next((each for each in ("promoted", "rolled_back") if each in found), "kept")


COMMANDS: Final = named(tune, retrain)

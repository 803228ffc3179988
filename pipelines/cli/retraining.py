"""`taut retrain`: one run of a schedule, such as cron: check the last promotion, train, promote or keep.

Options, the lock, the line on stdout and the exit code.
"""

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from pipelines.cli.commands import named
from pipelines.cli.models import RECIPE, read_training
from pipelines.cli.options import EngineOptions, WithFeedback, say, trace_of
from pipelines.errors import Busy
from pipelines.options import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.models.renewal import Decision

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
    from pipelines.lake.locks import exclusive
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


COMMANDS: Final = named(retrain)

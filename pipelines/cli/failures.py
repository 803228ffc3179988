"""Errors and interrupts of commands as one line and an exit code: 1 failed, 2 bad usage, 130 interrupted."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from features.errors import FeatureError
from modelserve.errors import ServeError
from pipelines.errors import BadUsage, PipelineError
from scheduler_core.errors import SchedulerError

EXIT_FAILED: Final = 1
EXIT_BAD_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

AFTER_INTERRUPT: Final = {
    "fetch": "what is downloaded stays; the same command resumes it",
    "ingest": "nothing was committed, the lake is as before; run it again",
    "train": "champions are unchanged; models registered before this moment stay as challengers",
    "evaluate": "nothing was written; run it again",
    "report": "no report was written, an existing one is unchanged; run it again",
    "sql": "nothing was written",
}
"""By command: what Ctrl-C leaves in place."""

DUCKDB_INTERRUPTED: Final = "Query interrupted"
"""Text of the RuntimeError that DuckDB raises at Ctrl-C."""


REWORDED: Final = (
    (re.compile(r"input should be ", re.I), "expected "),
    (re.compile(r"field required", re.I), "missing"),
    (re.compile(r"extra inputs are not permitted", re.I), "unknown name"),
    (re.compile(r"invalid JSON: ", re.I), "not valid JSON: "),
    (re.compile(r"value error, ", re.I), ""),
)
"""Phrases of the library that checks values, and what is printed instead."""


def in_words(text: str) -> str:
    """Return a message without the phrases of the library that checks values.

    >>> in_words("machines: Field required; jobs: Input should be a valid list")
    'machines: missing; jobs: expected a valid list'
    """
    for pattern, words in REWORDED:
        text = pattern.sub(words, text)
    return text


@contextmanager
def naming(place: Path) -> Iterator[None]:
    """Add the name of the file or folder to errors of writing it, because the error of a full disk names none.

    >>> with naming(Path("mapping.toml")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'mapping.toml'
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or EIO, _reason(error), str(place)) from error


@contextmanager
def out_written(out: Path) -> Iterator[None]:
    """Raise BadUsage if the file of the option --out cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadUsage(f"--out {out}: {_reason(error)}; name a file in a folder that can be written") from error


def write_whole(to: Path, text: str) -> None:
    """Write a file under another name and rename it, so that it is never there in part, even if the disk is full."""
    with naming(to), TemporaryDirectory(dir=to.absolute().parent, prefix=f".{to.name}.") as stage:
        staged = Path(stage) / to.name
        staged.write_text(text, encoding="utf-8", newline="\n")
        staged.replace(to)


def told(error: BaseException, command: str) -> tuple[str, int]:
    """Return the line to print about a command's error, and the exit code.

    >>> told(FileNotFoundError(2, "No such file or directory", "jobs.csv"), "recommend")
    ('jobs.csv: No such file or directory; check the path, its permissions and the free space', 1)
    >>> told(KeyboardInterrupt(), "sql")
    ('interrupted: nothing was written', 130)
    """
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and str(error) == DUCKDB_INTERRUPTED):
        safe = AFTER_INTERRUPT.get(command)
        return f"interrupted: {safe}" if safe else "interrupted", EXIT_INTERRUPTED
    if isinstance(error, PipelineError | FeatureError | ServeError | SchedulerError):
        return in_words(str(error)), EXIT_BAD_USAGE if isinstance(error, BadUsage) else EXIT_FAILED
    if isinstance(error, OSError):
        place, reason = error.filename or "a file or connection", _reason(error)
        return f"{place}: {reason}; check the path, its permissions and the free space", EXIT_FAILED
    if isinstance(error, ModuleNotFoundError):
        extras = "taut[agent] beside a cluster, taut[serve] to serve, taut[train] for all commands"
        return f"this command needs {error.name}: install {extras}", EXIT_FAILED
    if isinstance(error, UnicodeError):
        return "found bytes that are not UTF-8 text; expected text", EXIT_FAILED
    reason = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {reason} (taut --debug prints the traceback)", EXIT_FAILED


def _reason(error: OSError) -> str:
    """Return the system's reason; Polars gives it as text only, before the error's number."""
    given = re.fullmatch(r"(.+) \(os error \d+\)", str(error))
    return error.strerror or (given[1] if given else type(error).__name__)

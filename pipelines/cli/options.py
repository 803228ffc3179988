"""Options that several commands share; opening of the lake, models and trace that they name; output of rows and text.

Fast to import: slow imports happen inside the functions.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from zoneinfo import ZoneInfo

import typer

from modelserve.errors import ClientError
from pipelines.errors import BadUsage, ConnectError, SourceError, meant
from pipelines.models import NEWEST
from pipelines.options import REQUIRED, argument, option

if TYPE_CHECKING:
    import polars as pl

    from modelserve.client import Client
    from pipelines.engine.engine import Engine
    from pipelines.lake.lake import Lake as OpenLake

TOKEN_VARIABLE: Final = "TAUT_TOKEN"  # noqa: S105  # the name of a variable, not a token
CALL_LIMIT_S: Final = 60.0
"""Timeout of a call of the service; longer than a scheduler's, because a person waits."""

DEMO_LAKE: Final = Path("data/demo/lake")
SQLITE: Final = "sqlite:///"

Format = Literal["table", "json", "csv"]
By = Literal["kind", "workload"]
EngineName = Literal["local", "processes", "dask"]
Guard = Literal["usage", "none"]

ALL: Final = "all of them"
FORM: Format = option("table", "How to write the rows to stdout.", name="--format")
FORM_JSON: Format = option("json", "How to write the rows to stdout.", name="--format")
LAKE: Path | None = option(None, "The lake's folder.", shown="TAUT_LAKE, data/lake, the demo's")
CLUSTER: str | None = option(None, "Only this cluster of the trace.", shown=ALL)
SEED: int = option(0, "Seed of all random numbers.", minimum=0)
THREADS: int | None = option(None, "Threads for training.", minimum=1, shown="TAUT_THREADS, else all")
OFFLINE: bool = option(False, "Use the locally cached models; do not contact the registry.")
JOBS_FILE: str = argument(REQUIRED, "File of jobs, one JSON object per line or one array; - reads stdin.")
SCHEDULER: str | None = option(
    None,
    "Scheduler of a running Dask cluster, tcp://HOST:PORT or tls://HOST:PORT; for --engine dask.",
    metavar="ADDRESS",
    shown="a Dask cluster on this machine",
)


@dataclass(frozen=True, kw_only=True)
class InLake:
    """Options for the lake and the trace of a command."""

    lake: Path | None = LAKE
    trace: str | None = option(None, "Name of the trace in the lake.", shown="TAUT_TRACE, else the only one")

    def place(self) -> "Place":
        """Return where the command works."""
        return place_of(self.lake)

    def opened(self) -> AbstractContextManager[tuple["OpenLake", str]]:
        """Open the lake; yield it and the name of the trace."""
        return opened(self.lake, self.trace)


@dataclass(frozen=True, kw_only=True)
class Sample(InLake):
    """Options for the jobs from which models are trained, and how."""

    cluster: str | None = CLUSTER
    until: datetime | None = option(
        None,
        "Train only on jobs that ended before this day (the cluster's own time).",
        shown="leaves the latest fifth of the submissions",
    )
    by: By = option("kind", "One model per kind of work, or per raw workload tag.")
    types: tuple[str, ...] = option((), "Only this task type (may be repeated).", name="--type")
    newest: int = option(NEWEST, "Most jobs to read: the last submitted. More take more memory and time.", minimum=1)
    seed: int = SEED
    threads: int | None = THREADS


@dataclass(frozen=True, kw_only=True)
class WithFeedback(Sample):
    """Options for jobs of the lake and of a service's store."""

    with_feedback: str | None = option(
        None,
        "Also train on the finished jobs in a service's store (URL as in TAUT_SERVE_STORE). For a shrunk job, the use "
        "of a shrunk resource counts only if it exceeded the predicted peak, so capped use never lowers a floor.",
        name=("--with-feedback", "--feedback"),
        metavar="URL",
    )


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options for a service that may be asked."""

    url: tuple[str, ...] = option((), "Address of the service; repeat it for replicas.", shown="no service is asked")
    token_file: Path | None = option(None, "File that holds the service's token.", shown="TAUT_TOKEN")

    def client(self) -> "Client":
        """Return a client of the service."""
        from modelserve.client import Client, Timeouts

        limits = Timeouts(answer_s=CALL_LIMIT_S, total_s=CALL_LIMIT_S)
        return Client(*self.url, token=self.token(), timeouts=limits)

    def token(self) -> str | None:
        """Return the token for the service; None without one."""
        return token_of(self.token_file)


@dataclass(frozen=True, kw_only=True)
class Service(ServiceOptions):
    """Options for a service that must be named."""

    url: tuple[str, ...] = option(REQUIRED, "Address of the service; repeat it for replicas.")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options for where the units of a command run."""

    engine: EngineName = option(
        "local",
        "Where the work runs: in this process, in several processes, or on a Dask cluster. Results are equal if "
        "--threads is; of the latter two it counts for each process, and is 1 unless set.",
    )
    scheduler: str | None = SCHEDULER

    def chosen(self, threads: int | None) -> tuple["Engine", int]:
        """Return the engine, with as many processes as this machine allows, and the number of threads of each unit."""
        if self.engine == "local":
            return engine_of(self.engine, self.scheduler, 1), threads_of(threads)
        from pipelines.settings import load_settings, usable_cpus

        settings = load_settings()
        each = threads or (settings.threads if "threads" in settings.model_fields_set else 1)
        return engine_of(self.engine, self.scheduler, max(1, usable_cpus() // each)), each


def engine_of(name: EngineName, scheduler: str | None, count: int) -> "Engine":
    """Return the engine, with `count` processes."""
    if scheduler is not None and name != "dask":
        raise BadUsage(f"--scheduler {scheduler} needs --engine dask")
    if name == "local":
        from pipelines.engine.engine import Local

        return Local()
    if name == "processes":
        from pipelines.engine.engine import Processes

        return Processes(count)
    from pipelines.engine.dask_cluster import Dask

    return Dask(scheduler, count)


def emit(rows: "Sequence[Mapping[str, object]] | pl.DataFrame", form: Format, *, kinds: bool = False) -> None:
    """Write rows to stdout.

    With `kinds`, the rows are of several kinds: in JSON each has only its own columns instead of all columns.
    """
    from pipelines.render import render

    render(rows, form, stream=sys.stdout, kinds=kinds)


def say(text: str) -> None:
    """Write a line to stderr."""
    typer.echo(text, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command works: the lake, the URI of the model registry, the folder of cached models."""

    lake: Path
    tracking_uri: str
    bundles: Path

    def beside_registry(self, name: str) -> Path:
        """Return the path of a file next to the registry's database; next to the lake if the registry is a server."""
        database = self.tracking_uri.removeprefix(SQLITE)
        found = self.lake if database == self.tracking_uri else Path(database)
        return found.absolute().parent / name


def place_of(lake: Path | None, *, demo: bool = True) -> Place:
    """Return where a command works: the given lake, or the first there is of TAUT_LAKE, data/lake and the demo's lake.

    The registry and the cached models are next to the lake unless the settings name them. Commands that create a lake
    pass `demo=False`, which excludes the demo's lake. If the demo's lake is used, a notice on stderr names it.
    """
    from pipelines.settings import load_settings

    settings = load_settings()
    folder = lake or settings.lake
    unset = lake is None and "lake" not in settings.model_fields_set
    if demo and unset and not folder.exists() and DEMO_LAKE.is_dir():
        _notice_demo(folder.absolute())
        folder = DEMO_LAKE
    return Place(
        lake=folder,
        tracking_uri=settings.registry(folder),
        bundles=settings.bundles or folder.absolute().parent / "bundles",
    )


@cache
def _notice_demo(absent: Path) -> None:
    """Write a notice that the demo's lake is used; only once, even if `place_of` is called several times."""
    say(f"no lake at {absent}: using the demo's, {DEMO_LAKE}; --lake or TAUT_LAKE names another")


@contextmanager
def opened(lake: Path | None, trace: str | None) -> Iterator[tuple["OpenLake", str]]:
    """Open the lake; yield the lake and the name of the chosen trace."""
    from pipelines.lake.lake import Lake as OpenLake

    with OpenLake(place_of(lake).lake) as source:
        yield source, chosen_trace(source, trace)


def chosen_trace(lake: "OpenLake", trace: str | None) -> str:
    """Return the trace to use: the given option; if absent, that of the settings; if absent, the lake's only trace."""
    from pipelines.settings import load_settings

    return lake.chosen(trace or load_settings().trace)


def trace_of(lake: Path | None, trace: str | None) -> str:
    """Return the name of the chosen trace, from the lake or from the cached models; the lake is closed again."""
    from pipelines.lake.lake import Lake as OpenLake

    place = place_of(lake)
    mirrored = place.bundles.glob("*.*.*/") if place.bundles.is_dir() else ()
    known = {folder.name.split(".")[1] for folder in mirrored} | set(OpenLake(place.lake).traces())
    if trace is not None and trace not in known:
        held = ", ".join(sorted(known)) or "none"
        raise BadUsage(f"no trace {trace!r}; there are models or tables of: {held}{meant(trace, known)}")
    if trace is not None:
        return trace
    with opened(lake, None) as (_, name):
        return name


def local_cut(day: datetime | None, zone: str) -> datetime | None:
    """Convert a time without time zone, understood in the trace's time zone `zone`, to UTC."""
    if day is None or day.tzinfo is not None:
        return day
    return day.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def threads_of(option: int | None) -> int:
    """Return the number of threads: the given option, else the value in the settings."""
    from pipelines.settings import load_settings

    return option or load_settings().threads


def each_round(
    made: Callable[[], Sequence[Mapping[str, object]]], form: Format, *, every_s: float, rounds: int | None
) -> None:
    """Write the rows of each round; a failed round is reported, and its error raised if it is the last."""
    done = 0
    while rounds is None or done < rounds:
        if done:
            time.sleep(every_s)
        done += 1
        try:
            rows = made()
        except (SourceError, ConnectError, ClientError) as error:
            if done == rounds:
                raise
            say(f"warning: {error}; goes on trying")
        else:
            emit(rows, form, kinds=True)


def token_of(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """Return the token in a file, else in an environment variable; None without either."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadUsage(f"--token-file {file}: {reason}; expected a file that holds the token") from error

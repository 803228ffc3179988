"""Options that several commands share, the paths, lake, trace and times that they name, and output of rows and text.

Fast to import: slow imports happen inside the functions.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from zoneinfo import ZoneInfo

import typer
from typer.core import TyperOption

from pipelines.errors import BadUsage, meant
from pipelines.places import beside, located

if TYPE_CHECKING:
    import polars as pl
    from typer.core import TyperCommand, TyperGroup

    from pipelines.lake.lake import Lake as OpenLake

DEMO_LAKE: Final = Path("data/demo/lake")
SQLITE: Final = "sqlite:///"


class Format(StrEnum):
    """Output format of rows on stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class By(StrEnum):
    """What the jobs of one model have in common: the kind of work, or the workload tag."""

    KIND = "kind"
    WORKLOAD = "workload"


class GuardOption(StrEnum):
    """Guard of a shrunk request: the predicted peak use as a lower bound, or no bound."""

    USAGE = "usage"
    NONE = "none"


Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="PLACE",
        help="The lake: a folder, or s3://BUCKET/PREFIX.",
        show_default="TAUT_LAKE, data/lake, the demo's",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the rows to stdout.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.", min=0)]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads for training.", min=1, show_default="TAUT_THREADS, else all")
]
Trace = Annotated[
    str | None,
    typer.Option("--trace", help="Name of the trace in the lake.", show_default="TAUT_TRACE, else the only one"),
]
ByOption = Annotated[By, typer.Option("--by", help="One model per kind of work, or per raw workload tag.")]
Until = Annotated[
    datetime | None,
    typer.Option(
        "--until",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
        help="Train only on jobs that ended before this day (the cluster's own time).",
        show_default="leaves the latest fifth of the submissions",
    ),
]
RecipeFile = Annotated[
    Path | None,
    typer.Option(
        "--recipe",
        help="File of recipes, as `taut tune` writes it; run-time models without one get the default.",
        show_default=False,
    ),
]
Feedback = Annotated[
    str | None,
    typer.Option(
        "--with-feedback",
        "--feedback",
        metavar="URL",
        help="Also train on the finished jobs in a service's store (URL as in TAUT_SERVE_STORE). For a shrunk job, "
        "the use of a shrunk resource counts only if it exceeded the predicted peak, so capped use never lowers a "
        "floor.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Only this cluster of the trace.", show_default="all of them")
]
Newest = Annotated[
    int,
    typer.Option("--newest", min=1, help="Most jobs to read: the last submitted. More take more memory and time."),
]
TypeOption = Annotated[
    list[str] | None, typer.Option("--type", help="Only this task type (may be repeated).", show_default=False)
]

JobsFile = Annotated[str, typer.Argument(help="File of jobs, one JSON object per line or one array; - reads stdin.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use the locally cached models; do not contact the registry.")]

Urls = Annotated[
    list[str] | None,
    typer.Option("--url", help="Address of the service; repeat it for replicas.", show_default="in this process"),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File that holds the service's token.", show_default="TAUT_TOKEN")
]


def emit(
    rows: "Sequence[Mapping[str, object]] | pl.DataFrame", form: Format, *, kinds: bool = False, inert: bool = False
) -> None:
    """Write rows to stdout.

    With `kinds`, the rows are of several kinds: in JSON each has only its own columns instead of all columns. With
    `inert`, texts in CSV are written so that no spreadsheet runs them as formulas.
    """
    from pipelines.render import render

    render(rows, form.value, stream=sys.stdout, kinds=kinds, inert=inert)


def command_of(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command that calls `run`, with the fields of all option groups that `run` takes as its options."""
    groups: tuple[type, ...] = tuple(each.annotation for each in signature(run).parameters.values())

    def command(**options: Any) -> None:  # the type of each option is that of its field
        run(*(group(**{field.name: options[field.name] for field in fields(group)}) for group in groups))

    parameters = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for group in groups
        for field in fields(group)
    ]
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # a function may have one at run time
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def say(text: str) -> None:
    """Write a line to stderr."""
    typer.echo(text, err=True)


def flags_without_type(command: "TyperGroup | TyperCommand", ctx: typer.Context) -> None:
    """Show the flags of a command, and of all commands below it, without `<bool>` in their help."""
    for option in (*command.params, command.get_help_option(ctx)):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    for each in getattr(command, "commands", {}).values():
        flags_without_type(each, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command works: the lake, the URI of the model registry, the folder of cached models."""

    lake: str | Path
    tracking_uri: str
    bundles: Path

    def beside_registry(self, name: str) -> Path:
        """Return the path of a file next to the registry's database; next to the lake if the registry is a server."""
        database = self.tracking_uri.removeprefix(SQLITE)
        return beside(self.lake if database == self.tracking_uri else Path(database)) / name


def place_of(lake: str | Path | None, *, demo: bool = True) -> Place:
    """Return where a command works: in the given lake, else TAUT_LAKE, else data/lake, else the demo's lake.

    The registry and the cached models are next to the lake (for one in a bucket, in the folder `data`) unless the
    settings name them. Commands that create a lake
    pass `demo=False`, which excludes the demo's lake. If the demo's lake is used, a notice on stderr names it.
    """
    from pipelines.settings import load_settings

    settings = load_settings()
    folder = located(lake or settings.lake)
    unset = lake is None and "lake" not in settings.model_fields_set
    if demo and unset and not Path(folder).exists() and DEMO_LAKE.is_dir():
        _notice_demo(Path(folder).absolute())
        folder = DEMO_LAKE
    return Place(
        lake=folder,
        tracking_uri=settings.registry(folder),
        bundles=settings.bundles or beside(folder) / "bundles",
    )


@cache
def _notice_demo(absent: Path) -> None:
    """Write a notice that the demo's lake is used; only once, even if `place_of` is called several times."""
    say(f"no lake at {absent}: using the demo's, {DEMO_LAKE}; --lake or TAUT_LAKE names another")


@contextmanager
def opened(lake: str | Path | None, trace: str | None) -> Iterator[tuple["OpenLake", str]]:
    """Open the lake; yield the lake and the name of the chosen trace."""
    from pipelines.lake.lake import Lake as OpenLake

    with OpenLake(place_of(lake).lake) as source:
        yield source, chosen_trace(source, trace)


def chosen_trace(lake: "OpenLake", trace: str | None) -> str:
    """Return the trace to use: the given option, else the one in the settings, else the lake's only one."""
    from pipelines.settings import load_settings

    return lake.chosen(trace or load_settings().trace)


def trace_of(lake: str | Path | None, trace: str | None) -> str:
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

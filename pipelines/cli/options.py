"""Options that several subcommands share, declared once, and how rows reach stdout.

No command stands here and nothing heavy is imported. Called by the command files of `pipelines.cli`.
"""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import polars as pl


class Format(StrEnum):
    """How rows are written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class GuardOption(StrEnum):
    """Whether measured peak use bounds a shrink from below."""

    USAGE = "usage"
    NONE = "none"


Lake = Annotated[
    Path | None, typer.Option("--lake", help="Folder of the lake.", show_default="TAUT_LAKE, else data/lake")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write the rows to stdout.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads for training.", min=1, show_default="TAUT_THREADS, else all")
]
Trace = Annotated[
    str | None,
    typer.Option("--trace", help="Name of the trace in the lake.", show_default="TAUT_TRACE, else the only one"),
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Only this cluster of the trace.", show_default="all of them")
]
TypeOption = Annotated[
    list[str] | None, typer.Option("--type", help="Only this task type (may be repeated).", show_default=False)
]

JobsFile = Annotated[str, typer.Argument(help="File of jobs, one JSON object a line; - reads stdin.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use the champions brought before; do not ask the registry.")]

Urls = Annotated[
    list[str] | None,
    typer.Option("--url", help="Ask the service there (repeat it for replicas).", show_default="in this process"),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File of the service's token.", show_default="TAUT_TOKEN")
]


def emit(rows: "Sequence[Mapping[str, object]] | pl.DataFrame", form: Format, *, kinds: bool = False) -> None:
    """Write rows to stdout in the form asked; those of several `kinds` keep to their own columns in JSON."""
    from pipelines.render import render

    render(rows, form.value, stream=sys.stdout, kinds=kinds)


def say(text: str) -> None:
    """Write a line of talk to stderr."""
    typer.echo(text, err=True)

"""`taut rightsize`: what recurring jobs ask for beyond what they were measured to need, worst first.

No logic beyond reading options and writing rows. Called by `pipelines.cli`, which registers the command.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Trace, emit, say

SCREEN_ROWS: Final = 10
"""Rows of a table unless more are asked for; JSON and CSV hold all."""


class ByOption(StrEnum):
    """What a row is one of."""

    GROUP = "group"
    USER = "user"
    TYPE = "type"


def rightsize(
    lake: Lake = None,
    by: Annotated[ByOption, typer.Option("--by", help="What a row is one of: who runs the same job again.")] = (
        ByOption.GROUP
    ),
    trace: Trace = None,
    cluster: Cluster = None,
    since: Annotated[
        datetime | None, typer.Option("--since", help="Only jobs submitted from then on.", show_default=False)
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", help="Only jobs submitted before.", show_default=False)
    ] = None,
    min_runs: Annotated[
        int,
        typer.Option(
            "--min-runs",
            help="Measured runs that a target has to rest on: the group's own, else its user's of that type and role. "
            "With fewer of both the request stands; a row with fewer of its own comes last.",
            min=1,
        ),
    ] = 3,
    cpu_margin: Annotated[
        float, typer.Option("--cpu-margin", help="How far a target lies above the peak CPU use.", min=0.0, max=10.0)
    ] = 0.0,
    mem_margin: Annotated[
        float,
        typer.Option("--mem-margin", help="How far a target lies above the peak memory, GPUs' too.", min=0.0, max=10.0),
    ] = 0.15,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Only the worst so many.", min=1, show_default="10 in a table, else all"),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what recurring jobs ask for, what they were measured to need, and what they should ask for; worst first.

    Amounts are per instance; slack is in hours of all instances, which these same runs would have left free. Targets
    are the measured peak with its margin, GPUs on a grid of 0.05 below one; what would save less than 5 % stands.
    `rests_on` says whose measured runs the targets rest on, and how many; `runs` are all of the row's own.
    """
    from features.vocabulary import GPU_MEM_GIB_OF_TYPE
    from pipelines.cli.opening import local_cut, opened
    from pipelines.rightsizing.claims import submitted
    from pipelines.rightsizing.rows import rightsized, summary
    from pipelines.rightsizing.table import table_rows
    from scheduler_core.shrink import ShrinkPolicy

    policy = ShrinkPolicy(
        min_runs=min_runs,
        cpu_margin=cpu_margin,
        mem_margin=mem_margin,
        gpu_mem_margin=mem_margin,
        device_mem_gib=GPU_MEM_GIB_OF_TYPE,
    )
    with opened(lake, trace) as (source, name):
        jobs, usage = (source.table(table, name, cluster).collect() for table in ("jobs", "usage"))
        zone = source.manifest(name).zone
    window = submitted(jobs, since=local_cut(since, zone), until=local_cut(until, zone))
    rows = rightsized(window, usage, by.value, policy)
    shown = rows.head(limit or (SCREEN_ROWS if form is Format.TABLE else rows.height))
    for line in summary(rows):
        say(line)
    if shown.height < rows.height:
        say(f"the worst {shown.height} of {rows.height} rows; --limit shows more, --format json every figure")
    emit(table_rows(shown, by.value) if form is Format.TABLE else shown, form)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(rightsize)

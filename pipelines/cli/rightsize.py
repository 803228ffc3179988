"""`taut rightsize`: requests of recurring jobs next to their measured use, worst first.

Options and output only. Called by `pipelines.cli`, which registers the command.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Trace, emit, local_cut, opened, say

SCREEN_ROWS: Final = 10
"""Default maximum number of rows in a table; JSON and CSV hold all rows."""


class ByOption(StrEnum):
    """How runs are grouped into rows: by recurring job, by user, or by type."""

    GROUP = "group"
    USER = "user"
    TYPE = "type"


def rightsize(
    lake: Lake = None,
    by: Annotated[ByOption, typer.Option("--by", help="Grouping of rows: the same job submitted again.")] = (
        ByOption.GROUP
    ),
    trace: Trace = None,
    cluster: Cluster = None,
    since: Annotated[
        datetime | None, typer.Option("--since", help="Only jobs submitted from this time on.", show_default=False)
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", help="Only jobs submitted before this time.", show_default=False)
    ] = None,
    min_runs: Annotated[
        int,
        typer.Option(
            "--min-runs",
            help="Minimum of measured runs behind a target: the group's own, else its user's of that type and role. "
            "With fewer of both, the request is kept; rows with fewer of their own come last.",
            min=1,
        ),
    ] = 3,
    cpu_margin: Annotated[
        float, typer.Option("--cpu-margin", help="Margin of a target above the peak CPU use.", min=0.0, max=10.0)
    ] = 0.0,
    mem_margin: Annotated[
        float,
        typer.Option(
            "--mem-margin", help="Margin of a target above the peak memory, also for GPU memory.", min=0.0, max=10.0
        ),
    ] = 0.15,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Show the N worst rows.", min=1, show_default="10 in a table, else all"),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show requests, measured use and target requests of recurring jobs, worst first.

    Amounts are per instance; slack is in hours of all instances that the targets would have freed in the same
    runs, negative if they would have added hours. A target is the measured peak plus a margin, for GPUs below one on a
    grid of 0.05. A request is raised (`too_little`) if the peak exceeds it by 5 % or more, and kept if the target
    would save less than 5 %. A job killed for memory used at least its request. Reasons to keep it: `cold_start`, too
    few measured runs; `not_measured`, enough runs, but without the measurements that the target requires (for GPUs,
    both busy time and GPU memory). `rests_on` names the measured runs behind the targets and their number; `runs`
    counts all runs of the row.
    """
    from features.vocabulary import GPU_MEM_GIB_OF_TYPE
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
        say(f"the worst {shown.height} of {rows.height} rows; --limit shows more rows, --format json all columns")
    emit(table_rows(shown, by.value) if form is Format.TABLE else shown, form)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(rightsize)

"""`taut rightsize`: requests of recurring jobs next to their measured use, worst first.

Options and output only.
"""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Trace, emit, local_cut, opened, say
from pipelines.cli.patches import PatchOption, rightsize_patches
from pipelines.errors import BadUsage

if TYPE_CHECKING:
    import polars as pl

SCREEN_ROWS: Final = 10
"""Default maximum number of rows in a table; JSON and CSV hold all rows."""


DATES: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


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
        datetime | None,
        typer.Option("--since", formats=DATES, help="Only jobs submitted from this time on.", show_default=False),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", formats=DATES, help="Only jobs submitted before this time.", show_default=False),
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
    only: Annotated[
        str | None,
        typer.Option("--only", help="Only rows whose group, user or type begins so, as printed.", show_default=False),
    ] = None,
    patch: PatchOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show requests, measured use and target requests of recurring jobs, worst first.

    Amounts are per instance; slack is in hours of all instances that the targets would have freed in the same
    runs, negative if they would have added hours. A target is the measured peak plus a margin, for GPUs below one on a
    grid of 0.05. A request is raised (`too_little`) if the peak of runs with that request exceeds it by 5 % or more,
    and kept if the target would save less than 5 %. By group, request and target are those of the usual request, hours
    those of all its requests. A job killed for memory used at least its request. Reasons to keep it: `cold_start`, too
    few measured runs; `not_measured`, enough runs, but without the measurements that the target requires (for GPUs,
    both busy time and GPU memory). `rests_on` names the measured runs behind the targets and their number; `runs`
    counts all runs of the row. `raise` marks requests that are too small.
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
    if patch is not None and by is not ByOption.GROUP:
        raise BadUsage(f"--patch prints one request; rows by {by.value} are means of several: take --by group")
    with opened(lake, trace) as (source, name):
        jobs, usage = (source.table(table, name, cluster).collect() for table in ("jobs", "usage"))
        zone = source.manifest(name).zone
    window = submitted(jobs, since=local_cut(since, zone), until=local_cut(until, zone))
    rows = rightsized(window, usage, by.value, policy)
    found = rows if only is None else rows.filter(_named_so(only, by))
    if found.is_empty() and only is not None:
        raise BadUsage(f"--only {only}: no {by.value} of the {rows.height} rows begins so")
    shown = found.head(limit or (SCREEN_ROWS if form is Format.TABLE else found.height))
    if patch is not None:
        typer.echo(rightsize_patches(shown.iter_rows(named=True), patch), nl=False)
        return
    for line in summary(rows):
        say(line)
    if shown.height < found.height:
        say(f"the worst {shown.height} of {found.height} rows; --limit shows more rows, --format json all columns")
    if form is not Format.TABLE:
        emit(shown, form)
        return
    emit(table_rows(shown, by.value), form)
    say("--only NAME --patch yaml or sbatch prints what to paste")


def _named_so(prefix: str, by: ByOption) -> "pl.Expr":
    """Return whether a row's name begins with a prefix; jobs without a group are printed as their user, after `@`."""
    import polars as pl

    if by is ByOption.GROUP and prefix.startswith("@"):
        return pl.col("group").is_null() & pl.col("user").str.starts_with(prefix[1:])
    return pl.col("task_type" if by is ByOption.TYPE else by.value).str.starts_with(prefix)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(rightsize)

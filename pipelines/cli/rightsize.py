"""`taut rightsize`: requests of recurring jobs next to their measured use, worst first; as rows or as text to paste.

Options and output only.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from pipelines.cli.commands import named
from pipelines.cli.options import CLUSTER, FORM, Format, InLake, emit, local_cut, say
from pipelines.errors import BadUsage
from pipelines.options import option

if TYPE_CHECKING:
    import polars as pl

    from scheduler_core.shrink import ShrinkPolicy

SCREEN_ROWS: Final = 10
"""Default maximum number of rows in a table; JSON and CSV hold all rows."""

PatchFormat = Literal["yaml", "sbatch"]
"""Where a patch is pasted: into a pod's container, or into a batch script."""

PATCH: PatchFormat | None = option(
    None, "Print what to paste instead of rows: `resources` of a pod's container, or #SBATCH lines."
)

Named = Mapping[str, Any]  # a row has texts, numbers and times

By = Literal["group", "user", "type"]


@dataclass(frozen=True, kw_only=True)
class Runs(InLake):
    """Options for the runs from which rows are made, and their grouping."""

    by: By = option("group", "Grouping of rows: the same job submitted again.")
    cluster: str | None = CLUSTER
    since: datetime | None = option(None, "Only jobs submitted from this time on.")
    until: datetime | None = option(None, "Only jobs submitted before this time.")

    def rows(self, policy: "ShrinkPolicy") -> "pl.DataFrame":
        """Return one row per group, user or type, worst first."""
        from pipelines.rightsizing.claims import submitted
        from pipelines.rightsizing.rows import rightsized

        with self.opened() as (source, name):
            jobs, usage = (source.table(table, name, self.cluster).collect() for table in ("jobs", "usage"))
            zone = source.manifest(name).zone
        window = submitted(jobs, since=local_cut(self.since, zone), until=local_cut(self.until, zone))
        return rightsized(window, usage, self.by, policy)


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Options for target requests."""

    min_runs: int = option(
        3,
        "Minimum of measured runs behind a target: the group's own, else its user's of that type and role. With fewer "
        "of both, the request is kept; rows with fewer of their own come last.",
        minimum=1,
    )
    cpu_margin: float = option(0.0, "Margin of a target above the peak CPU use.", minimum=0.0, maximum=10.0)
    mem_margin: float = option(
        0.15, "Margin of a target above the peak memory, also for GPU memory.", minimum=0.0, maximum=10.0
    )

    def policy(self) -> "ShrinkPolicy":
        """Return the parameters of the targets."""
        from features.vocabulary import GPU_MEM_GIB_OF_TYPE
        from scheduler_core.shrink import ShrinkPolicy

        return ShrinkPolicy(
            min_runs=self.min_runs,
            cpu_margin=self.cpu_margin,
            mem_margin=self.mem_margin,
            gpu_mem_margin=self.mem_margin,
            device_mem_gib=GPU_MEM_GIB_OF_TYPE,
        )


def rightsize(
    runs: Runs,
    margins: Margins,
    limit: int | None = option(None, "Show the N worst rows.", minimum=1, shown="10 in a table, else all"),
    only: str | None = option(None, "Only rows whose group, user or type begins so, as printed."),
    patch: PatchFormat | None = PATCH,
    form: Format = FORM,
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
    from pipelines.rightsizing.rows import summary
    from pipelines.rightsizing.table import table_rows

    if patch is not None and runs.by != "group":
        raise BadUsage(f"--patch prints one request; rows by {runs.by} are means of several: take --by group")
    rows = runs.rows(margins.policy())
    found = rows if only is None else rows.filter(_named_so(only, runs.by))
    if found.is_empty() and only is not None:
        raise BadUsage(f"--only {only}: no {runs.by} of the {rows.height} rows begins so")
    shown = found.head(limit or (SCREEN_ROWS if form == "table" else found.height))
    if patch is not None:
        typer.echo(rightsize_patches(shown.iter_rows(named=True), patch), nl=False)
        return
    for line in summary(rows):
        say(line)
    if shown.height < found.height:
        say(f"the worst {shown.height} of {found.height} rows; --limit shows more rows, --format json all columns")
    if form != "table":
        emit(shown, form)
        return
    emit(table_rows(shown, runs.by), form)
    say("--only NAME --patch yaml or sbatch prints what to paste")


def _named_so(prefix: str, by: By) -> "pl.Expr":
    """Return whether a row's name begins with a prefix; jobs without a group are printed as their user, after `@`."""
    import polars as pl

    if by == "group" and prefix.startswith("@"):
        return pl.col("group").is_null() & pl.col("user").str.starts_with(prefix[1:])
    return pl.col("task_type" if by == "type" else by).str.starts_with(prefix)


def advice_patches(answers: Iterable[Named], form: PatchFormat) -> str:
    """Return the patches of the flat rows of `taut recommend`, one per job."""
    return _patches(((f"job {row['job_id']}", row["measured_runs"], row) for row in answers), form)


def rightsize_patches(rows: Iterable[Named], form: PatchFormat) -> str:
    """Return the patches of the rows of `taut rightsize`, one per row, with full names."""
    titled = (
        (
            ", ".join(f"{key} {row[key]}" for key in ("group", "user", "task_type", "role") if row[key]),
            row["evidence_runs"],
            row,
        )
        for row in rows
    )
    return _patches(titled, form)


def _patches(titled: Iterable[tuple[str, object, Named]], form: PatchFormat) -> str:
    write, between = (_yaml, "---\n") if form == "yaml" else (_sbatch, "\n")
    return between.join(_patch(title, runs, row, write) for title, runs, row in titled)


def _patch(title: str, runs: object, row: Named, write: Any) -> str:  # one of the two writers below
    from scheduler_core.types import RESOURCES

    changes = {
        resource: (float(row[resource]), float(wanted))
        for resource in RESOURCES
        if row[resource] is not None and (wanted := _wanted(row, resource)) is not None and wanted != row[resource]
    }
    safe = "".join(each if each.isprintable() else "?" for each in title)  # names come from users
    heads = [f"# {safe}; rests on {runs} measured runs"]
    heads += [
        f"# {name}: {asked:.4g} -> {wanted:.4g} ({row[f'{name}_reason']})" for name, (asked, wanted) in changes.items()
    ]
    if not changes:
        return "\n".join([*heads, "# nothing to change"]) + "\n"
    return "\n".join([*heads, *write({name: wanted for name, (_, wanted) in changes.items()})]) + "\n"


def _wanted(row: Named, resource: str) -> float | None:
    raised, target = row.get(f"{resource}_raise_to"), row[f"{resource}_target"]
    wanted: float | None = target if raised is None else raised
    return wanted


def _sbatch(wanted: Mapping[str, float]) -> list[str]:
    lines = []
    if "cpu_cores" in wanted:
        lines.append(f"#SBATCH --cpus-per-task={math.ceil(wanted['cpu_cores'])}")
    if "mem_gib" in wanted:
        lines.append(f"#SBATCH --mem={math.ceil(wanted['mem_gib'] * 1024)}M")
    if "gpus" in wanted:
        lines += [*_whole_gpus(wanted["gpus"], "gres/shard"), f"#SBATCH --gpus-per-node={math.ceil(wanted['gpus'])}"]
    return lines


def _yaml(wanted: Mapping[str, float]) -> list[str]:
    asked = []
    if "cpu_cores" in wanted:
        asked.append(f'    cpu: "{math.ceil(Fraction(str(wanted["cpu_cores"])) * 1000)}m"')
    if "mem_gib" in wanted:
        asked.append(f'    memory: "{math.ceil(Fraction(str(wanted["mem_gib"])) * 1024)}Mi"')
    lines = ["resources:", *(["  requests:", *asked] if asked else [])]
    if "gpus" in wanted:
        lines += [*_whole_gpus(wanted["gpus"], "a shared device"), "  limits:"]
        lines.append(f'    nvidia.com/gpu: "{math.ceil(wanted["gpus"])}"')
    return lines


def _whole_gpus(gpus: float, part: str) -> list[str]:
    return [] if gpus == math.ceil(gpus) else [f"# {gpus:.4g} of a GPU needs {part}; the next line asks for whole GPUs"]


COMMANDS: Final = named(rightsize)

"""`taut usage prometheus`: measure the jobs and machines of a trace from what a live cluster's exporters recorded.

Options and output only; the work is in `pipelines.connect`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Trace, emit, local_cut, opened, say

TOKEN_VARIABLE: Final = "TAUT_PROMETHEUS_TOKEN"  # noqa: S105  # the name of a variable, not a token
PERCENT: Final = 100
MOMENTS: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]


class Exporters(StrEnum):
    """Sets of exporters whose series can be read."""

    DCGM_JOB = "dcgm-job"
    DCGM_NODE = "dcgm-node"
    SLURM_JOB_EXPORTER = "slurm-job-exporter"
    CADVISOR = "cadvisor"


def prometheus(
    url: Annotated[str, typer.Option("--url", help="Address of the server, as http://prometheus:9090.")],
    dialect: Annotated[
        Exporters,
        typer.Option(
            "--dialect",
            help="dcgm-job: dcgm-exporter with hpc_job; dcgm-node: without, see --held; cadvisor: with DCGM by pod.",
        ),
    ],
    trace: Trace = None,
    cluster: Cluster = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since", formats=MOMENTS, help="Only jobs that ended since then (cluster's time).", show_default="all"
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--until", formats=MOMENTS, help="Only jobs that ended until then (cluster's time).", show_default="all"
        ),
    ] = None,
    match: Annotated[
        str, typer.Option("--match", help="Only series with these labels, as 'cluster=\"a100\"'.", show_default="all")
    ] = "",
    held: Annotated[
        Path | None,
        typer.Option(
            "--held",
            help="For dcgm-node: CSV file of the GPUs that each job held (job_id,machine,gpu).",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File that holds the server's token.", show_default=TOKEN_VARIABLE),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", help="Certificates (PEM) that verify the server's.", show_default="the system's"),
    ] = None,
    lake: Lake = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Read the use of ended jobs, of machines and of GPUs from a Prometheus server into the lake.

    Each hour is read once and kept next to the lake's tables, so a broken run goes on where it stopped. A job gets a
    row in `usage` if its samples cover at least 0.8 of its run.
    """
    from pipelines.cli.progress import counting_progress
    from pipelines.cli.remote import token_of
    from pipelines.connect.prometheus.measuring import Wanted, measure
    from pipelines.connect.prometheus.server import open_server

    token = token_of(token_file, TOKEN_VARIABLE)
    with opened(lake, trace) as (source, name), open_server(url, token=token, ca=ca) as server:
        zone = source.manifest(name).zone
        wanted = Wanted(
            trace=name,
            cluster=_only_cluster(source.manifest(name).clusters, cluster),
            dialect=dialect.value,
            match=match,
            since=local_cut(since, zone),
            until=local_cut(until, zone),
            held=held,
        )
        with counting_progress(PERCENT) as show:
            found = measure(
                source, server, wanted, lambda done, total: show(PERCENT * done // total, f"hour {done} of {total}")
            )
    emit([{"trace": name, "cluster": wanted.cluster, **found.jobs, **_rows(found.rows)}], form)
    _say_coverage(found.jobs, read=found.hours_read, kept=found.hours_kept, partial=found.hours_partial)


def _say_coverage(jobs: Mapping[str, int], *, read: int, kept: int, partial: int) -> None:
    say(f"hours: {read} read, {kept} kept from before")
    if partial:
        say(f"warning: the server's answers about {partial} hours were incomplete; they are read again")
    if jobs["no_series"] == jobs["jobs"]:
        say("warning: no series names one of the jobs: check --dialect, --match and the job ids")
    left_out = jobs["jobs"] - jobs["measured"]
    if left_out:
        say(f"{left_out} of {jobs['jobs']} ended jobs were not measured; their use stays unknown")


def _rows(rows: Mapping[str, int]) -> dict[str, int]:
    return {f"{table}_rows": count for table, count in rows.items()}


def _only_cluster(clusters: tuple[str, ...], chosen: str | None) -> str:
    from pipelines.errors import BadUsage

    if chosen is not None:
        return chosen
    if len(clusters) != 1:
        raise BadUsage(f"the trace has the clusters {', '.join(clusters)}: choose the server's with --cluster")
    return clusters[0]


def register(app: typer.Typer) -> None:
    """Add `taut usage` to the app."""
    group = typer.Typer(
        no_args_is_help=True, help="Measure jobs and machines from what the exporters of a live cluster record."
    )
    group.command()(prometheus)
    group.callback()(lambda: None)
    app.add_typer(group, name="usage")

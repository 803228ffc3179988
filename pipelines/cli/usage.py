"""`taut usage prometheus`: measure the jobs and machines of a trace from what a live cluster's exporters recorded.

Options and output only; the work is in `pipelines.connect`.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pipelines.cli.commands import Commands, Group, named
from pipelines.cli.options import CLUSTER, FORM, Format, InLake, emit, local_cut, say, token_of
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, option

TOKEN_VARIABLE: Final = "TAUT_PROMETHEUS_TOKEN"  # noqa: S105  # the name of a variable, not a token

Exporters = Literal["dcgm-job", "dcgm-node", "slurm-job-exporter", "cadvisor"]


def prometheus(
    where: InLake,
    url: str = option(REQUIRED, "Address of the server, as http://prometheus:9090."),
    dialect: Exporters = option(
        REQUIRED, "dcgm-job: DCGM that names jobs; dcgm-node: DCGM without jobs (--held); cadvisor: also DCGM by pod."
    ),
    cluster: str | None = CLUSTER,
    since: datetime | None = option(None, "Only jobs that ended since then (cluster's time).", shown="all"),
    until: datetime | None = option(None, "Only jobs that ended until then (cluster's time).", shown="all"),
    match: str = option("", "Only series with these labels, as 'cluster=\"a100\"'.", shown="all"),
    held: Path | None = option(None, "For dcgm-node: CSV file of the GPUs that each job held (job_id,machine,gpu)."),
    token_file: Path | None = option(None, "File that holds the server's token.", shown=TOKEN_VARIABLE),
    ca: Path | None = option(
        None, "PEM file of the CA certificates by which to check the server.", shown="the system's"
    ),
    form: Format = FORM,
) -> None:
    """Read the use of ended jobs, of machines and of GPUs from a Prometheus server into the lake.

    Each hour is read once and kept next to the lake's tables, so a broken run goes on where it stopped. A job gets a
    row in `usage` if its samples cover at least 0.8 of its run.
    """
    from pipelines.cli.progress import counting_progress
    from pipelines.connect.prometheus.measuring import Wanted, measure
    from pipelines.connect.prometheus.server import open_server

    token = token_of(token_file, TOKEN_VARIABLE)
    with where.opened() as (source, name), open_server(url, token=token, ca=ca) as server:
        zone = source.manifest(name).zone
        wanted = Wanted(
            trace=name,
            cluster=_only_cluster(source.manifest(name).clusters, cluster),
            dialect=dialect,
            match=match,
            since=local_cut(since, zone),
            until=local_cut(until, zone),
            held=held,
        )
        with counting_progress() as show:
            found = measure(source, server, wanted, partial(show, "hours"))
    rows = {f"{table}_rows": count for table, count in found.rows.items()}
    emit([{"trace": name, "cluster": wanted.cluster, **found.jobs, **rows}], form)
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


def _only_cluster(clusters: tuple[str, ...], chosen: str | None) -> str:
    if chosen is not None:
        return chosen
    if len(clusters) != 1:
        raise BadUsage(f"the trace has the clusters {', '.join(clusters)}: choose the server's with --cluster")
    return clusters[0]


COMMANDS: Final[Commands] = {
    "usage": Group(
        help="Measure jobs and machines from what the exporters of a live cluster record.", commands=named(prometheus)
    )
}

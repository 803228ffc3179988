"""`taut slurm files | agent | history | feedback`, `taut reclaim slurm` and `taut job`: connect a Slurm cluster.

Options and output only; the work is in `pipelines.connect.slurm`.
"""

import re
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pipelines.cli.commands import Commands, Group, named
from pipelines.cli.options import FORM, LAKE, Format, Service, ServiceOptions, each_round, emit, place_of, say, token_of
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option

SOCKET: Path = option(Path("/run/taut/slurm.sock"), "Unix socket of the agent.")
TRACE: str = option("slurm", "Trace of the jobs, as in the agent's settings.")
ONCE: bool = option(False, "Make one round and exit; 1 if it fails.")


def files(
    out: Path = option(REQUIRED, "Folder to fill, such as /etc/taut."),
    cluster: str = option(REQUIRED, "The cluster's name, as ClusterName in slurm.conf."),
    socket: Path = SOCKET,
    url: str = option("http://127.0.0.1:8080", "Address of the service."),
    user: str = option("slurm", "User of the agent: SlurmUser of slurm.conf."),
    gpus: Path = option(Path("/run/dcgm/job-mapping"), "Folder of dcgm-exporter's --hpc-job-mapping-dir."),
    form: Format = FORM,
) -> None:
    """Write the plugin script, prolog, epilog, the agent's unit and settings, and the lines for slurm.conf."""
    from pipelines.connect.slurm.files import write_files

    program = shutil.which("taut") or str(Path(sys.executable).with_name("taut"))
    emit(write_files(out, cluster=cluster, socket=socket, gpus=gpus, program=program, service=url, user=user), form)


def agent(
    config: Path = option(REQUIRED, "Settings, as `taut slurm files` writes them."), socket: Path = SOCKET
) -> None:
    """Answer the plugin of slurmctld at a Unix socket until stopped; every fault leaves the job as asked."""
    import asyncio

    from pipelines.connect.slurm.agent import run_agent
    from pipelines.connect.slurm.policy import read_settings

    asyncio.run(run_agent(read_settings(config), socket, say=say))


@dataclass(frozen=True, kw_only=True)
class Sacct:
    """Options for the records of sacct."""

    since: datetime | None = option(
        None, "Read jobs that ended since then (UTC).", shown="a day before the newest record, else 30 days"
    )
    from_file: str | None = option(
        None, "Read sacct's text from this file, - for stdin, in place of running sacct.", name="--from"
    )
    cluster: str = option("main", "With --from: the cluster, if the text names none.")
    interval_s: float | None = option(None, "Seconds between samples of use.", minimum=0.0, shown="slurmctld's setting")


def history(
    sacct: Sacct,
    records: Path | None = option(None, "Folder of the records.", shown="slurm, next to the lake"),
    lake: Path | None = LAKE,
    as_name: str = option("slurm", "Name of the trace in the lake.", name="--as"),
    only: Literal["read", "ingest"] | None = option(
        None,
        "Read into the records only, or ingest these only: for Slurm and lake on two hosts.",
        shown="both",
    ),
    form: Format = FORM,
) -> None:
    """Read ended jobs from sacct, add them to the records, and ingest all records into the lake."""
    from pipelines.connect.slurm.history import update

    place = place_of(lake, demo=False)
    folder = records or place.beside_registry("slurm")
    added, quarantined = update(
        folder,
        place.lake,
        trace=as_name,
        since=None if sacct.since is None else sacct.since.replace(tzinfo=UTC),
        told=None if sacct.from_file is None else (_text_of(sacct.from_file), sacct.cluster),
        interval_s=sacct.interval_s,
        only=only,
    )
    if not added and only != "ingest":
        say("no ended job was found; nothing was ingested")
        return
    if added:
        emit([asdict(each) for each in added], form)
    if only == "read":
        say(f"kept in {folder}; `taut slurm history --only ingest` brings them into a lake")
        return
    say(f"ingested as trace {as_name} in {place.lake}; {quarantined} jobs in quarantine")


def feedback(
    service: Service,
    trace: str = TRACE,
    state: Path = option(Path("/var/lib/taut/slurm-feedback"), "File that holds the time of the last poll."),
    every_s: float = option(5.0, "Seconds between polls.", minimum=1.0, maximum=86_400.0),
    once: bool = ONCE,
) -> None:
    """Report ended jobs to the service, once each, and give waiting jobs their requests back after harm.

    If the service has tokens, this needs one with the scope `accounting`; by others, reports are only shown.
    """
    from pipelines.connect.slurm.feedback import report

    with service.client() as client:
        report(client, trace=trace, state=state, every_s=None if once else every_s, say=say)


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """Options for the use of the jobs' GPUs."""

    prometheus: str | None = option(
        None,
        "Prometheus server that has the jobs' GPUs; its token is read from TAUT_PROMETHEUS_TOKEN.",
        shown="CPU and memory only, from sstat",
    )
    dialect: Literal["dcgm-job", "slurm-job-exporter"] = option(
        "dcgm-job", "With --prometheus: the exporters that it reads."
    )
    match: str = option("", "With --prometheus: only series with these labels.", shown="all")

    def server(self) -> AbstractContextManager[Any]:  # Any: a server, whose type needs Polars
        """Open the Prometheus server; None without one."""
        if self.prometheus is None:
            return nullcontext()
        from pipelines.connect.prometheus.server import open_server

        return open_server(self.prometheus, token=token_of(None, "TAUT_PROMETHEUS_TOKEN"))


def reclaim(
    service: Service,
    gpu_use: GpuUse,
    trace: str = TRACE,
    ledger: Path | None = option(
        None,
        "File that keeps the statistics of running jobs between rounds.",
        shown="reclaim-slurm.json, next to the lake",
    ),
    every_s: float = option(60.0, "Seconds between rounds.", minimum=1.0, maximum=86_400.0),
    once: bool = ONCE,
    lake: Path | None = LAKE,
    form: Format = FORM,
) -> None:
    """Report what could run beside the running jobs of each node, and which waiting jobs would fit; changes nothing.

    A job keeps its request in its first six minutes. Then it keeps the mean and spread of its CPU use, and its largest
    memory with a margin.
    """
    from functools import partial

    from pipelines.connect.ledger import Ledger
    from pipelines.connect.slurm.reclaim import SlurmReclaimer, exported_use

    path = ledger or place_of(lake, demo=False).beside_registry("reclaim-slurm.json")
    with service.client() as client, gpu_use.server() as server:
        exported = None if server is None else partial(exported_use, server, gpu_use.dialect, gpu_use.match)
        reclaimer = SlurmReclaimer(client=client, trace=trace, ledger=Ledger.read(path), exported=exported)

        def made() -> list[dict[str, object]]:
            rows = reclaimer.round(datetime.now(UTC))
            reclaimer.ledger.write(path)
            return rows

        each_round(made, form, every_s=every_s, rounds=1 if once else None)


def job(
    service: ServiceOptions,
    number: str = argument(REQUIRED, "Number of an ended Slurm job, such as 4711 or 68_149.", metavar="ID"),
    trace: str = option("slurm", "With --url: trace of the jobs, as in the agent."),
    form: Format = FORM,
) -> None:
    """Show what a Slurm job asked for, was given and used, and the options for its next submission."""
    from pipelines.connect.slurm.summary import summarise

    if not re.fullmatch(r"[0-9]+(_[0-9]+|\+[0-9]+)?", number):
        raise BadUsage(f"ID {number[:40]!r}: expected the number of a job, such as 4711 or 68_149")
    with service.client() if service.url else nullcontext() as client:
        emit(summarise(number, client=client, trace=trace), form)


def _text_of(source: str) -> str:
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadUsage(f"--from {source}: {error.strerror}; expected a file with sacct's text, or -") from error


COMMANDS: Final[Commands] = {
    "slurm": Group(
        help="Connect a Slurm cluster to the prediction service.", commands=named(files, agent, history, feedback)
    ),
    "reclaim": Group(help="Report what running jobs leave idle, from their own use.", commands={"slurm": reclaim}),
    "job": job,
}

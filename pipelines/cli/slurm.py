"""`taut slurm files | agent | history | feedback`, `taut reclaim slurm` and `taut job`: connect a Slurm cluster.

Options and output only; the work is in `pipelines.connect.slurm`.
"""

import re
import shutil
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, Lake, TokenFile, Urls, emit, place_of, say
from pipelines.errors import BadUsage

SOCKET: Final = Path("/run/taut/slurm.sock")
SERVICE: Final = "http://127.0.0.1:8080"
STATE: Final = Path("/var/lib/taut/slurm-feedback")
GPUS: Final = Path("/run/dcgm/job-mapping")

group = typer.Typer(name="slurm", no_args_is_help=True, help="Connect a Slurm cluster to the prediction service.")

reclaiming = typer.Typer(
    name="reclaim", no_args_is_help=True, help="Report what running jobs leave idle, from their own use."
)
reclaiming.callback()(lambda: None)


class JobExporters(StrEnum):
    """Sets of exporters whose series name Slurm's jobs."""

    DCGM_JOB = "dcgm-job"
    SLURM_JOB_EXPORTER = "slurm-job-exporter"


Socket = Annotated[Path, typer.Option("--socket", help="Unix socket of the agent.")]


@group.command()
def files(
    out: Annotated[Path, typer.Option("--out", help="Folder to fill, such as /etc/taut.")],
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster's name, as ClusterName in slurm.conf.")],
    socket: Socket = SOCKET,
    url: Annotated[str, typer.Option("--url", help="Address of the service.")] = SERVICE,
    user: Annotated[str, typer.Option("--user", help="User of the agent: SlurmUser of slurm.conf.")] = "slurm",
    gpus: Annotated[Path, typer.Option("--gpus", help="Folder of dcgm-exporter's --hpc-job-mapping-dir.")] = GPUS,
    form: FormatOption = Format.TABLE,
) -> None:
    """Write the plugin script, prolog, epilog, the agent's unit and settings, and the lines for slurm.conf."""
    from pipelines.connect.slurm.files import check_lua, write_files

    program = shutil.which("taut") or str(Path(sys.executable).with_name("taut"))
    emit(write_files(out, cluster=cluster, socket=socket, gpus=gpus, program=program, service=url, user=user), form)
    if not check_lua(""):
        say("warning: no Lua is installed here, so job_submit.lua was not compiled; its text is the tested one")


@group.command()
def agent(
    config: Annotated[Path, typer.Option("--config", help="Settings, as `taut slurm files` writes them.")],
    socket: Socket = SOCKET,
) -> None:
    """Answer the plugin of slurmctld at a Unix socket until stopped; every fault leaves the job as asked."""
    import asyncio

    from pipelines.connect.slurm.agent import run_agent
    from pipelines.connect.slurm.policy import read_settings

    asyncio.run(run_agent(read_settings(config), socket, say=say))


@group.command()
def history(
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Read jobs that ended since then (UTC).",
            show_default="a day before the newest record, else 30 days",
        ),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from", help="Read sacct's text from this file, - for stdin, in place of running sacct."),
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", help="With --from: the cluster, if the text names none.")
    ] = "main",
    interval_s: Annotated[
        float | None,
        typer.Option(
            "--interval-s", help="Seconds between samples of use.", min=0.0, show_default="as slurmctld has it"
        ),
    ] = None,
    records: Annotated[
        Path | None, typer.Option("--records", help="Folder of the records.", show_default="slurm, next to the lake")
    ] = None,
    lake: Lake = None,
    as_name: Annotated[str, typer.Option("--as", help="Name of the trace in the lake.")] = "slurm",
    form: FormatOption = Format.TABLE,
) -> None:
    """Read ended jobs from sacct, add them to the records, and ingest all records into the lake."""
    from pipelines.connect.slurm.history import update

    place = place_of(lake, demo=False)
    added, quarantined = update(
        records or place.beside_registry("slurm"),
        place.lake,
        trace=as_name,
        since=None if since is None else since.replace(tzinfo=UTC),
        told=None if from_file is None else (_text_of(from_file), cluster),
        interval_s=interval_s,
    )
    if not added:
        say("no ended job was found; nothing was ingested")
        return
    emit([{"cluster": a.cluster, "read": a.read, "new": a.new, "records": a.records} for a in added], form)
    say(f"ingested as trace {as_name} in {place.lake}; {quarantined} jobs in quarantine")


@group.command()
def feedback(
    url: Annotated[list[str], typer.Option("--url", help="Address of the service; repeat it for replicas.")],
    token_file: TokenFile = None,
    trace: Annotated[str, typer.Option("--trace", help="Trace of the jobs, as in the agent's settings.")] = "slurm",
    state: Annotated[Path, typer.Option("--state", help="File that holds the time of the last poll.")] = STATE,
    every_s: Annotated[float, typer.Option("--every-s", help="Seconds between polls.", min=1.0, max=86_400.0)] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Poll once and exit; 1 if it fails.")] = False,
) -> None:
    """Report ended jobs and jobs killed for memory to the service, which counts each once."""
    from pipelines.cli.remote import client_of
    from pipelines.connect.slurm.feedback import report

    with client_of(url, token_file, jobs=1) as client:
        report(client, trace=trace, state=state, every_s=None if once else every_s, say=say)


@reclaiming.command("slurm")
def reclaim(
    url: Annotated[list[str], typer.Option("--url", help="Address of the service; repeat it for replicas.")],
    token_file: TokenFile = None,
    trace: Annotated[str, typer.Option("--trace", help="Trace of the jobs, as in the agent's settings.")] = "slurm",
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            help="Prometheus server that has the jobs' GPUs; its token is read from TAUT_PROMETHEUS_TOKEN.",
            show_default="CPU and memory only, from sstat",
        ),
    ] = None,
    dialect: Annotated[
        JobExporters, typer.Option("--dialect", help="With --prometheus: the exporters that it reads.")
    ] = JobExporters.DCGM_JOB,
    match: Annotated[
        str, typer.Option("--match", help="With --prometheus: only series with these labels.", show_default="all")
    ] = "",
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            help="File of what is known of running jobs; it grows and shrinks with their number.",
            show_default="reclaim-slurm.json, next to the lake",
        ),
    ] = None,
    every_s: Annotated[float, typer.Option("--every-s", help="Seconds between rounds.", min=1.0, max=86_400.0)] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Make one round and exit; 1 if it fails.")] = False,
    lake: Lake = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Report what could run beside the running jobs of each node, and which waiting jobs would fit; changes nothing.

    A job keeps its request in its first six minutes. Then it keeps the mean and spread of its CPU use, and its largest
    memory with a margin.
    """
    from contextlib import nullcontext
    from functools import partial

    from pipelines.cli.remote import client_of, each_round, token_of
    from pipelines.connect.ledger import Ledger
    from pipelines.connect.prometheus.server import open_server
    from pipelines.connect.slurm.reclaim import SlurmReclaimer, exported_use

    path = ledger or place_of(lake, demo=False).beside_registry("reclaim-slurm.json")
    token = token_of(None, "TAUT_PROMETHEUS_TOKEN")
    with (
        client_of(url, token_file, jobs=1) as client,
        open_server(prometheus, token=token) if prometheus else nullcontext() as server,
    ):
        exported = None if server is None else partial(exported_use, server, dialect.value, match)
        reclaimer = SlurmReclaimer(client=client, trace=trace, ledger=Ledger.read(path), exported=exported)

        def made() -> list[dict[str, object]]:
            rows = reclaimer.round(datetime.now(UTC))
            reclaimer.ledger.write(path)
            return rows

        each_round(made, form, every_s=every_s, rounds=1 if once else None)


def job(
    number: Annotated[str, typer.Argument(metavar="ID", help="Number of an ended Slurm job, such as 4711 or 68_149.")],
    url: Urls = None,
    token_file: TokenFile = None,
    trace: Annotated[str, typer.Option("--trace", help="With --url: trace of the jobs, as in the agent.")] = "slurm",
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what a Slurm job asked for, was given and used, and the options for its next submission."""
    from contextlib import nullcontext

    from pipelines.cli.remote import client_of
    from pipelines.connect.slurm.summary import summarise

    if not re.fullmatch(r"[0-9]+(_[0-9]+|\+[0-9]+)?", number):
        raise BadUsage(f"ID {number[:40]!r}: expected the number of a job, such as 4711 or 68_149")
    with client_of(url, token_file, jobs=1) if url else nullcontext() as client:
        emit(summarise(number, client=client, trace=trace), form)


def _text_of(source: str) -> str:
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadUsage(f"--from {source}: {error.strerror}; expected a file with sacct's text, or -") from error


def register(app: typer.Typer) -> None:
    """Add the groups and `taut job` to the app."""
    app.add_typer(group)
    app.add_typer(reclaiming)
    app.command()(job)

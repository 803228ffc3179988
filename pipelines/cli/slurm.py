"""`taut slurm files | agent`: connect a Slurm cluster to the prediction service.

Options and output only; the work is in `pipelines.connect.slurm`. Called by `pipelines.cli`, which registers the group.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, emit, say

SOCKET: Final = Path("/run/taut/slurm.sock")
GPUS: Final = Path("/run/dcgm/job-mapping")

group = typer.Typer(name="slurm", no_args_is_help=True, help="Connect a Slurm cluster to the prediction service.")

Socket = Annotated[Path, typer.Option("--socket", help="Unix socket of the agent.")]


@group.command()
def files(
    out: Annotated[Path, typer.Option("--out", help="Folder to fill, such as /etc/taut.")],
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster's name, as ClusterName in slurm.conf.")],
    socket: Socket = SOCKET,
    gpus: Annotated[Path, typer.Option("--gpus", help="Folder of dcgm-exporter's --hpc-job-mapping-dir.")] = GPUS,
    form: FormatOption = Format.TABLE,
) -> None:
    """Write the plugin script, prolog, epilog, the agent's unit and settings, and the lines for slurm.conf."""
    from pipelines.connect.slurm.files import check_lua, write_files

    program = shutil.which("taut") or str(Path(sys.executable).with_name("taut"))
    emit(write_files(out, cluster=cluster, socket=socket, gpus=gpus, program=program), form)
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


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    app.add_typer(group)

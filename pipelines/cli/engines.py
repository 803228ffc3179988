"""Options that choose the engine of a command, and the engine and the threads of each unit that they name.

`pipelines.engine` has the engines.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pipelines.cli.options import threads_of
from pipelines.errors import BadUsage

if TYPE_CHECKING:
    from pipelines.engine.engine import Engine


class EngineName(StrEnum):
    """Where the units of a command run."""

    LOCAL = "local"
    PROCESSES = "processes"
    DASK = "dask"


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Where the work runs: in this process, in several processes, or on a Dask cluster. Results are equal if "
        "--threads is; of the latter two it counts for each process, and is 1 unless set.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Scheduler of a running Dask cluster, tcp://HOST:PORT or tls://HOST:PORT; for --engine dask.",
        show_default="a Dask cluster on this machine",
    ),
]


class Chosen(NamedTuple):
    """The engine of a command, and the number of threads of each unit."""

    engine: "Engine"
    threads: int


def chosen_engine(name: EngineName, scheduler: str | None, threads: int | None) -> Chosen:
    """Return the engine, with as many processes as the cores of this machine allow."""
    if name is EngineName.LOCAL:
        return Chosen(engine_of(name, scheduler, 1), threads_of(threads))
    from pipelines.settings import load_settings, usable_cpus

    settings = load_settings()
    each = threads or (settings.threads if "threads" in settings.model_fields_set else 1)
    return Chosen(engine_of(name, scheduler, max(1, usable_cpus() // each)), each)


def engine_of(name: EngineName, scheduler: str | None, count: int) -> "Engine":
    """Return the engine, with `count` processes."""
    if scheduler is not None and name is not EngineName.DASK:
        raise BadUsage(f"--scheduler {scheduler} needs --engine dask")
    if name is EngineName.LOCAL:
        from pipelines.engine.engine import Local

        return Local()
    if name is EngineName.PROCESSES:
        from pipelines.engine.processes import Processes

        return Processes(count)
    from pipelines.engine.dask_cluster import Dask

    return Dask(scheduler, count)

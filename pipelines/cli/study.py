"""`taut study NAME`: every study as a command whose options are the fields of its config.

The command opens the inputs of the study and writes its findings. A study is imported only when it is run.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipelines.cli.commands import Commands, Group, Lazy, Run, command_of
from pipelines.cli.options import (
    FORM,
    LAKE,
    SCHEDULER,
    THREADS,
    EngineName,
    Format,
    chosen_trace,
    emit,
    engine_of,
    place_of,
    say,
    threads_of,
)
from pipelines.options import option
from pipelines.studies import STUDIES

if TYPE_CHECKING:
    from pipelines.engine.engine import Engine
    from pipelines.studies.study import Context, Findings, Study


@dataclass(frozen=True, kw_only=True)
class LakeOption:
    """Option of a study that reads the lake."""

    lake: Path | None = LAKE


@dataclass(frozen=True, kw_only=True)
class ThreadsOption:
    """Option of a study that trains models."""

    threads: int | None = THREADS


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """Options for where the runs of a study happen."""

    engine: EngineName = option(
        "processes", "Where the runs happen: here, in --processes, or on a Dask cluster. Results are equal."
    )
    scheduler: str | None = SCHEDULER
    processes: int | None = option(
        None, "Processes for the runs.", minimum=1, maximum=256, shown="TAUT_THREADS, else all"
    )

    def chosen(self) -> "Engine":
        """Return the engine; one process is this one."""
        count = threads_of(self.processes)
        name: EngineName = "local" if (self.engine, count) == ("processes", 1) else self.engine
        return engine_of(name, self.scheduler, count)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options for the findings."""

    out: Path | None = option(None, "New folder for rows, runs and charts.", shown="none is written")
    form: Format = FORM


GROUPS: Final = {"lake": LakeOption, "threads": ThreadsOption, "engine": RunsOptions}
"""Options that a study can have besides those of its config, by the names in `Study.takes`."""


def load(name: str) -> "Study[Any]":  # Any: the type of the config differs between studies
    """Import the study `name` and return it."""
    module, _, attribute = STUDIES[name].at.partition(":")
    study: Study[Any] = getattr(import_module(module), attribute)
    return study


def made(name: str) -> Run:
    """Return the command of the study `name`."""
    return study_command(load(name), STUDIES[name].help, STUDIES[name].trace)


def study_command(study: "Study[Any]", about: str, usual: str) -> Run:
    """Return a command for typer that runs the study; `usual` is the trace that it reads by default."""

    def run(config: object, output: Output, **taken: Any) -> None:  # Any: groups of options
        _run(study, config, output, usual, **taken)

    run.__doc__ = "\n\n".join([about, *(f"{name}: {what}" for name, what in study.arms.items())])
    return command_of(run, {**{name: GROUPS[name] for name in study.takes}, "config": study.config, "output": Output})


def _run(
    study: "Study[Any]",
    config: object,
    output: Output,
    usual: str,
    *,
    lake: LakeOption | None = None,
    threads: ThreadsOption | None = None,
    engine: RunsOptions | None = None,
) -> None:
    """Run a study; write notes and progress to stderr, rows to stdout, and files to the folder `out`."""
    from pipelines.cli.progress import compiling
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.study import write

    runner = engine_of("local", None, 1) if engine is None else engine.chosen()
    folder = None if output.out is None else fresh_folder(output.out)
    with compiling(), ExitStack() as stack:
        folder_of, count = None if lake is None else lake.lake, None if threads is None else threads.threads
        context = _context(stack, folder_of, count, runner, usual)
        findings = study.run(config, context)
    for note in findings.notes:
        say(f"note: {note}")
    if folder is not None:
        say(f"written: {', '.join(str(path) for path in write(findings, folder))}")
    _print(findings, output.form)


def _context(stack: ExitStack, lake: Path | None, threads: int | None, engine: "Engine", usual: str) -> "Context":
    from functools import cache

    from pipelines.errors import LakeError
    from pipelines.fetch.publication import how_to_get
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.settings import load_settings
    from pipelines.studies.study import Context

    settings, place = load_settings(), cache(lambda: place_of(lake))  # late, for a study that reads no lake
    opened: Callable[[], OpenLake] = cache(lambda: stack.enter_context(OpenLake(place().lake)))

    def chosen(trace: str | None) -> str:
        try:
            return chosen_trace(opened(), trace)
        except LakeError as error:
            raise LakeError(f"{error}; {how_to_get(trace or settings.trace or usual)}") from error

    return Context(
        lake=opened,
        trace=chosen,
        energy=settings.energy,
        traces=settings.traces,
        threads=threads_of(threads),
        engine=engine,
        talk=say,
    )


def _print(findings: "Findings", form: Format) -> None:
    from pipelines.studies.study import rendered

    if form != "table":
        emit(findings.rows(), form, kinds=True)
        return
    for title, rows in findings.every_table().items():
        if title:
            say(f"\n{title}")
        emit(rendered(rows), form)


COMMANDS: Final[Commands] = {
    "study": Group(
        help="Studies: one question each, answered on real, rebuilt or synthetic jobs, with intervals.",
        commands={name: Lazy(help=entry.help, make=partial(made, name)) for name, entry in STUDIES.items()},
    )
}

"""`taut study NAME`: every study as a command whose options are the fields of its config.

The command opens the inputs of the study and writes its findings. A study is imported only when it is run.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from pipelines.cli.engines import EngineName, Scheduler, engine_of
from pipelines.cli.options import (
    Format,
    FormatOption,
    Lake,
    Threads,
    chosen_trace,
    emit,
    flags_without_type,
    place_of,
    say,
    threads_of,
)
from pipelines.errors import BadUsage
from pipelines.studies.registry import STUDIES

if TYPE_CHECKING:
    from pipelines.engine.engine import Engine
    from pipelines.studies.study import Context, Findings, Study

Processes = Annotated[
    int | None,
    typer.Option("--processes", help="Processes for the runs.", min=1, max=256, show_default="TAUT_THREADS, else all"),
]
StudyEngine = Annotated[
    EngineName,
    typer.Option(
        "--engine", help="Where the runs happen: here, in --processes, or on a Dask cluster. Results are equal."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="New folder for rows, runs and charts.", show_default="none is written")
]

SHARED: Final[dict[str, dict[str, tuple[Any, object]]]] = {  # Any: annotations
    "lake": {"lake": (Lake, None)},
    "threads": {"threads": (Threads, None)},
    "engine": {
        "engine": (StudyEngine, EngineName.PROCESSES),
        "scheduler": (Scheduler, None),
        "processes": (Processes, None),
    },
}
"""Options and their defaults that a study can have besides those of its config; `Study.takes` names those of one."""


class Choice(StrEnum):
    """Enumeration of the values of a `Literal`, which typer needs for options that may be repeated.

    Configs get the values as plain strings.
    """


class StudyCommand(TyperCommand):
    """A study in the list of commands; its real command, with options, is built only when it is called."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:  # Any: click's
        """Parse the options of the study."""
        name = str(self.name)
        made: Any = typer.main.get_command(app_of(load(name), STUDIES[name].help))
        flags_without_type(made, parent)
        return made.make_context(info_name, args, parent, **extra)


def load(name: str) -> "Study[Any]":  # Any: the type of the config differs between studies
    """Import the study `name` and return it."""
    module, _, attribute = STUDIES[name].at.partition(":")
    study: Study[Any] = getattr(import_module(module), attribute)
    return study


def app_of(study: "Study[Any]", about: str) -> typer.Typer:
    """Return an app with one command that runs the study; its options are shared options and fields of its config."""
    taken = {name: how for take in study.takes for name, how in SHARED[take].items()}
    options: dict[str, inspect.Parameter] = {name: _parameter(name, *how) for name, how in taken.items()}
    hints = get_type_hints(study.config)
    options |= {each.name: _option(each, hints[each.name]) for each in dataclasses.fields(study.config)}
    options |= {"out": _parameter("out", Out, None), "form": _parameter("form", FormatOption, Format.TABLE)}

    def command(**given: Any) -> None:
        shared = {name: given.pop(name) for name in (*taken, "out", "form")}
        config = {name: _plain(value) for name, value in given.items() if value is not None}
        _check_finite(study, config)
        _run(study, study.config(**config), **shared)

    command.__doc__ = "\n\n".join([about, *(f"{name}: {what}" for name, what in study.arms.items())])
    command.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    return app


def _check_finite(study: "Study[Any]", config: Mapping[str, object]) -> None:
    for each in dataclasses.fields(study.config):
        value = config.get(each.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise BadUsage(f"{_flag(each)}: found {value}, expected a finite number")


def _flag(each: "dataclasses.Field[Any]") -> str:
    return each.metadata["name"] or f"--{each.name.replace('_', '-')}"


def _option(each: "dataclasses.Field[Any]", kind: Any) -> inspect.Parameter:
    """Return the option for a field of a config.

    For a tuple the option may be repeated; if it is not given, the default of the config is used.
    """
    flag, known = _flag(each), dict(each.metadata)
    known.pop("name")
    default = each.default
    members = [member for member in get_args(kind) if member is not type(None)]
    if get_origin(kind) in (Union, UnionType):
        (kind,) = members
    if get_origin(kind) is tuple:
        (member, _) = get_args(kind)
        if get_origin(member) is Literal:
            member = Choice(each.name, {value: value for value in get_args(member)})  # type: ignore[call-arg]  # made here
        kind, default = list[member], None  # type: ignore[valid-type]  # the type is made at run time
    kind = kind if default is not None else kind | None
    known = {name: value for name, value in known.items() if value is not None}
    return _parameter(each.name, Annotated[kind, typer.Option(flag, **known)], default)


def _plain(value: object) -> object:
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    return value.value if isinstance(value, Choice) else value


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _run(
    study: "Study[Any]",
    config: object,
    *,
    out: Path | None,
    form: Format,
    lake: str | Path | None = None,
    threads: int | None = None,
    engine: EngineName = EngineName.LOCAL,
    scheduler: str | None = None,
    processes: int | None = None,
) -> None:
    """Run a study; write notes and progress to stderr, rows to stdout, and files to the folder `out`."""
    from pipelines.cli.progress import compiling
    from pipelines.simulation.results_folder import fresh_folder

    count = threads_of(processes)
    name = EngineName.LOCAL if (engine, count) == (EngineName.PROCESSES, 1) else engine
    chosen = engine_of(name, scheduler, count)
    folder = None if out is None else fresh_folder(out)
    with compiling(), ExitStack() as stack:
        findings = study.run(config, _context(stack, lake, threads, chosen))
    for note in findings.notes:
        say(f"note: {note}")
    if folder is not None:
        from pipelines.studies.study import write

        say(f"written: {', '.join(str(path) for path in write(findings, folder))}")
    _print(findings, form)


def _context(stack: ExitStack, lake: str | Path | None, threads: int | None, engine: "Engine") -> "Context":
    from functools import cache

    from pipelines.cli.opening import champions
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.settings import load_settings
    from pipelines.studies.study import Context

    settings, place = load_settings(), cache(lambda: place_of(lake))  # late, for a study that reads no lake
    opened: Callable[[], OpenLake] = cache(lambda: stack.enter_context(OpenLake(place().lake)))
    return Context(
        lake=opened,
        trace=lambda trace: chosen_trace(opened(), trace),
        champions=lambda offline: champions(place(), offline=offline),
        energy=settings.energy,
        traces=settings.traces,
        threads=threads_of(threads),
        engine=engine,
        talk=say,
    )


def _print(findings: "Findings", form: Format) -> None:
    from pipelines.studies.study import rendered

    if form is not Format.TABLE:
        emit(findings.rows(), form, kinds=True)
        return
    for title, rows in findings.every_table().items():
        if title:
            say(f"\n{title}")
        emit(rendered(rows), form)


def register(app: typer.Typer) -> None:
    """Add `taut study` to the app."""
    about = "Studies: one question each, answered on real, rebuilt or synthetic jobs, with intervals."
    studies = typer.Typer(no_args_is_help=True, help=about)
    for name, entry in STUDIES.items():
        studies.command(name, help=entry.help, cls=StudyCommand)(lambda: None)
    app.add_typer(studies, name="study")

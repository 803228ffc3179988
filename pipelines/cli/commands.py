"""Make commands from functions whose parameters are declared by `option` and `argument`.

A parameter whose type is a dataclass stands for the options that are its fields.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, make_dataclass
from datetime import datetime
from enum import StrEnum
from functools import reduce
from importlib import import_module
from inspect import Parameter, Signature, signature
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pipelines.errors import BadUsage
from pipelines.options import option

if TYPE_CHECKING:
    from pydantic import BaseModel

Run = Callable[..., None]
DATES: Final = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")
"""Formats of a `datetime`, unless its option has others."""


class Choice(StrEnum):
    """The values of a `Literal`, which typer needs for options that may be repeated; commands get plain strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A command with subcommands, by name."""

    help: str
    commands: "Commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lazy:
    """A command whose options need slow imports: `make` returns its function for typer when it is called."""

    help: str
    make: Callable[[], Run]


Commands = dict[str, Run | Lazy | Group]


def add(app: typer.Typer, name: str, command: Run | Lazy | Group, panel: str | None = None) -> None:
    """Add a command or a group of commands to an app."""
    if isinstance(command, Group):
        group = typer.Typer(no_args_is_help=True, help=command.help)
        group.callback()(lambda: None)  # so that one subcommand is still a subcommand
        for below, each in command.commands.items():
            add(group, below, each)
        app.add_typer(group, name=name, rich_help_panel=panel)
    elif isinstance(command, Lazy):
        kind = type("Late", (LateCommand,), {"lazy": command})
        app.command(name, help=command.help, cls=kind, rich_help_panel=panel)(lambda: None)
    else:
        app.command(name, rich_help_panel=panel)(command_of(command))


def named(*commands: Run) -> Commands:
    """Return functions by the names of their commands."""
    return {each.__name__.replace("_", "-"): each for each in commands}


def late(at: str, about: str) -> Lazy:
    """Return a command, `module:function` in this package, whose module is imported when it is called."""
    module, _, name = at.partition(":")
    return Lazy(help=about, make=lambda: command_of(getattr(import_module(f"pipelines.cli.{module}"), name)))


def command_of(run: Run, groups: Mapping[str, Any] | None = None) -> Run:
    """Return a function for typer that calls `run`, with one parameter for each option.

    `groups` are the dataclasses of the parameters of `run`, by name, if its signature does not name them.
    """
    own = signature(run).parameters if groups is None else {}
    kinds = groups or {name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)}
    declared: dict[str, tuple[Any, Field[Any]]] = {}  # Any: types
    for name in groups or own:
        if name in kinds:
            hints = get_type_hints(kinds[name])
            declared |= {each.name: (hints[each.name], each) for each in fields(kinds[name])}
        else:
            declared[name] = (own[name].annotation, own[name].default)

    def command(**given: Any) -> None:  # Any: the type of each option is that of its parameter
        values = {name: _plain(name, value, declared[name][1]) for name, value in given.items()}
        made = {
            name: kind(**{each.name: values.pop(each.name) for each in fields(kind)}) for name, kind in kinds.items()
        }
        run(**made, **values)

    parameters = [_parameter(name, *each) for name, each in declared.items()]
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # a function may have one at run time
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def options_from(model: "type[BaseModel]", names: Mapping[str, str]) -> Any:  # Any: a dataclass made here
    """Return a dataclass of options for fields of a pydantic model; an option that is not given is None.

    The values of `names` describe the defaults in words.
    """
    declared = []
    for name, shown in names.items():
        known = model.model_fields[name]
        bounds = {
            bound: getattr(each, bound) for each in known.metadata for bound in ("ge", "le") if hasattr(each, bound)
        }
        text = str(known.description)
        about = f"{text[0].upper()}{text[1:]}."
        made = option(None, about, minimum=bounds.get("ge"), maximum=bounds.get("le"), shown=shown)
        declared.append((name, known.annotation, made))
    return make_dataclass("Given", declared, frozen=True)


def flags_without_type(command: TyperGroup | TyperCommand, ctx: typer.Context) -> None:
    """Show the flags of a command, and of all commands below it, without `<bool>` in their help."""
    for each in (*command.params, command.get_help_option(ctx)):
        if isinstance(each, TyperOption) and each.is_flag:
            each.metavar = ""
    for below in getattr(command, "commands", {}).values():
        flags_without_type(below, ctx)


class LateCommand(TyperCommand):
    """A command that is made only when it is called."""

    lazy: Lazy

    def made(self) -> Any:  # Any: click's command
        """Return the real command, with its options."""
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        made = self.lazy.make()
        app.command(self.name, help=made.__doc__)(made)
        return typer.main.get_command(app)

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:  # Any: click's
        """Make the command, and parse its options."""
        made = self.made()
        flags_without_type(made, parent)
        return made.make_context(info_name, args, parent, **extra)


def _parameter(name: str, kind: Any, declared: "Field[Any]") -> Parameter:  # Any: types
    """Return the parameter for an option; one that may be repeated has the default None."""
    about = {key: value for key, value in declared.metadata.items() if value is not None and key != "name"}
    default = Parameter.empty if declared.default is MISSING else declared.default
    if get_origin(kind) in (Union, UnionType):
        kind = reduce(or_, (each for each in get_args(kind) if each is not type(None)))
    if get_origin(kind) is tuple:
        member = get_args(kind)[0]
        if get_origin(member) is Literal:
            member = Choice(name, {value: value for value in get_args(member)})  # type: ignore[call-arg]  # made here
        kind, default = list[member], default if default is Parameter.empty else None  # type: ignore[valid-type]
    if kind is datetime:
        about.setdefault("formats", list(DATES))
    kind = kind | None if default is None else kind
    info = typer.Argument(**about) if about.pop("argument", False) else typer.Option(*_flags(name, declared), **about)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _plain(name: str, value: Any, declared: "Field[Any]") -> Any:  # Any: the value of an option
    """Return an option's value for the command: the default if it is not given, a tuple if it may be repeated."""
    if isinstance(value, list):
        return tuple(_plain(name, each, declared) for each in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadUsage(f"{_flags(name, declared)[0]}: found {value}, expected a finite number")
    if value is None and declared.default is not MISSING:
        return declared.default
    return str(value) if isinstance(value, Choice) else value


def _flags(name: str, declared: "Field[Any]") -> Sequence[str]:
    flags = declared.metadata.get("name") or f"--{name.replace('_', '-')}"
    return [flags] if isinstance(flags, str) else flags

"""Declare options of commands: parameters of command functions, or fields of dataclasses such as configs of studies.

`pipelines.cli.commands` makes the options. A type may be `bool` (a flag), `int`, `float`, `str`, `Path`, `datetime`,
`Literal` or `StrEnum`; `X | None` is optional, `list[X] | None` and `tuple[X, ...]` may be repeated.
"""

from collections.abc import Sequence
from dataclasses import MISSING, field
from typing import Any, Final, TypeVar

__all__ = ["REQUIRED", "argument", "option"]

Default = TypeVar("Default")

REQUIRED: Final[Any] = MISSING
"""The default of an option that must be given."""


def option(
    default: Default,
    help: str,  # noqa: A002 - named as typer names it
    *,
    name: str | Sequence[str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    shown: str | None = None,
    metavar: str | None = None,
    formats: Sequence[str] | None = None,
) -> Default:
    """Declare an option: `name` is `--field-name` by default, `shown` describes the default value in words.

    `formats` are those of a `datetime`.
    """
    about = {"help": help, "name": name, "min": minimum, "max": maximum, "show_default": shown}
    declared: Default = field(default=default, metadata={**about, "metavar": metavar, "formats": formats})
    return declared


def argument(default: Default, help: str, *, shown: str | None = None, metavar: str | None = None) -> Default:  # noqa: A002
    """Declare an argument, which is given by its position."""
    about = {"help": help, "show_default": shown or False, "metavar": metavar, "argument": True}
    declared: Default = field(default=default, metadata=about)
    return declared

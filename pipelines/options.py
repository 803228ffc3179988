"""Declare options of commands: parameters of command functions, or fields of dataclasses such as configs of studies.

`pipelines.cli.commands` makes the options. A type may be `bool` (a flag), `int`, `float`, `str`, `Path`, `datetime`,
`Literal` or `StrEnum`; `X | None` is optional, `list[X] | None` and `tuple[X, ...]` may be repeated.
"""

from collections.abc import Sequence
from dataclasses import MISSING, field
from typing import Any

__all__ = ["argument", "option"]


def option(
    default: Any,  # Any: of the type of the option; ... requires it
    help: str,  # noqa: A002 - named as typer names it
    *,
    name: str | Sequence[str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    shown: str | None = None,
    metavar: str | None = None,
    formats: Sequence[str] | None = None,
) -> Any:
    """Declare an option: `name` is `--field-name` by default, `shown` describes the default value in words.

    `formats` are those of a `datetime`.
    """
    about = {"help": help, "name": name, "min": minimum, "max": maximum, "show_default": shown}
    default = MISSING if default is ... else default
    return field(default=default, metadata={**about, "metavar": metavar, "formats": formats})


def argument(default: Any, help: str, *, shown: str | None = None, metavar: str | None = None) -> Any:  # noqa: A002
    """Declare an argument, which is given by its position."""
    about = {"help": help, "show_default": shown or False, "metavar": metavar, "argument": True}
    return field(default=MISSING if default is ... else default, metadata=about)

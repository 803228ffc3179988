"""Generate the page `docs/cli.md`: the help of every command.

Importing it writes nothing; run as a program it writes the page. A test compares the page with the generated text.
Run by hand: `python -m pipelines.cli.reference`.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from pipelines.cli import app

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
WIDTH: Final = "100"


def command_paths() -> list[tuple[str, ...]]:
    """Return the path of every command below `taut`, a group before its subcommands, in the order of `--help`."""
    return _paths(typer.main.get_group(app))


@cache
def command_line() -> str:
    """Return the text of `taut --help` and of every subcommand's help, at a fixed width and without colour."""
    texts = [(" ".join(("taut", *path)), _help(path)) for path in ((), *command_paths())]
    sections = [f"## {title}\n\n```text\n{text}\n```\n" for title, text in texts]
    return "# Command line\n\nGenerated from `--help`.\n\n" + "\n".join(sections)


def _paths(group: TyperGroup, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths = []
    for name, command in group.commands.items():
        if command.hidden:
            continue
        paths.append((*above, name))
        if isinstance(command, TyperGroup):
            paths += _paths(command, (*above, name))
    return paths


def _help(command: Sequence[str]) -> str:
    environment = {"COLUMNS": WIDTH, "TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": None}
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="taut", env=environment)
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(command_line(), encoding="utf-8")

"""The generated pages of `docs/`: the command-line reference, and the list of modules by their own first lines.

Writes nothing unless run as a program; a test holds the pages against it.
Run by hand: `python -m pipelines.cli.reference`.
"""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from pipelines.cli import app

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("features", "pipelines", "modelserve", "scheduler_core")
WIDTH: Final = "100"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    return {ROOT / "docs" / "cli.md": command_line(), ROOT / "docs" / "modules.md": modules()}


def command_names() -> list[str]:
    """Return the names of all subcommands, in the order of `taut --help`."""
    return [path[0] for path in command_paths() if len(path) == 1]


def command_paths() -> list[tuple[str, ...]]:
    """Return every command behind `taut`, each group before its own, in the order of the helps."""
    return _paths(typer.main.get_group(app))


def command_line() -> str:
    """Return `taut --help` and then every subcommand's, those of groups too, at a fixed width and without colour."""
    texts = [(" ".join(("taut", *path)), _help(path)) for path in ((), *command_paths())]
    sections = [f"## {title}\n\n```text\n{text}\n```\n" for title, text in texts]
    return "# Command line\n\nGenerated from `--help`.\n\n" + "\n".join(sections)


def modules() -> str:
    """Return one table per package: every module, and the first line of its docstring."""
    sections = []
    for package in PACKAGES:
        found = sorted((ROOT / package).rglob("*.py"))
        rows = [f"| `{file.relative_to(ROOT).as_posix()}` | {_first_line(file)} |" for file in found]
        sections.append(f"## {package}\n\n| module | purpose |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "# Modules\n\nGenerated from the first line of every module.\n\n" + "\n".join(sections)


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
    environment = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": None}
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="taut", env=environment)
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


def _first_line(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    # A bar would end the table's cell.
    return docstring.partition("\n")[0].replace("|", r"\|")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")

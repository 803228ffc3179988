"""The command-line reference: every `--help` text, as one page.

Writes nothing unless run as a program; a test holds `docs/cli.md` against it.
Run by hand: `python -m pipelines.cli.reference`.
"""

import os
from pathlib import Path

import typer
from typer.testing import CliRunner

from pipelines.cli import app

WIDTH = "100"


def command_names() -> list[str]:
    """Return the names of all subcommands, in the order of `taut --help`."""
    group = typer.main.get_group(app)
    return list(group.commands)


def reference() -> str:
    """Return the page: `taut --help` and then every subcommand's, at a fixed width and without colour."""
    texts = [("taut", _help([]))] + [(f"taut {name}", _help([name])) for name in command_names()]
    sections = [f"## {title}\n\n```text\n{text}\n```\n" for title, text in texts]
    return "# Command line\n\nGenerated from `--help`.\n\n" + "\n".join(sections)


def _help(command: list[str]) -> str:
    environment = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": None}
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="taut", env=environment)
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


if __name__ == "__main__":
    os.environ["COLUMNS"] = WIDTH
    Path(__file__).resolve().parents[2].joinpath("docs", "cli.md").write_text(reference(), encoding="utf-8")

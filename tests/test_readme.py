"""The README: every command it shows exists with the options it shows, and every page it names is there."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.cli import app
from pipelines.cli.study import StudyCommand, app_of, load

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/models.md",
    "docs/results.md",
    "docs/serving.md",
    "docs/synthetic.md",
    "docs/studies/run-times.md",
    "docs/studies/shrinking.md",
    "docs/studies/reclaim.md",
    "docs/studies/replay.md",
    "docs/studies/carbon.md",
    "docs/studies/cost.md",
    "docs/studies/energy.md",
    "docs/studies/fragmentation.md",
    "docs/studies/sites.md",
)
SHOWN = re.compile(r"(?:^|[`|] *| {4})(taut [a-z]+[^`#|\n]*)", re.MULTILINE)


def shown_commands(page: str) -> list[str]:
    return [found.strip() for found in SHOWN.findall((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES)
def test_shown_commands_exist_with_their_options(page: str) -> None:
    commands = [shlex.split(line) for line in shown_commands(page)]

    assert commands
    for _, *words in commands:
        found: Any = typer.main.get_group(app)  # a group at first, a command at last
        while hasattr(found, "commands"):
            found, words = found.commands[words[0]], words[1:]
        if isinstance(found, StudyCommand):
            found = typer.main.get_command(app_of(load(str(found.name)), ""))
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, found.name


def test_every_page_named_is_there() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert named
    assert all((ROOT / page).is_file() for page in named)


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {"demo", "test", "test-slow", "check", "bench"} <= set(targets)

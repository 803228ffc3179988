"""The README: every command it shows exists with the options it shows, and every page it names is there."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.cli import app
from pipelines.cli.commands import LateCommand
from tests import newcomer

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/index.md",
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
        while hasattr(found, "commands") and words:
            found, words = found.commands[words[0]], words[1:]
        if isinstance(found, LateCommand):
            found = found.made()
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, found.name


def test_every_page_named_is_there() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert named
    assert all((ROOT / page).is_file() for page in named)


@pytest.mark.slow
def test_the_six_commands_for_own_jobs_give_a_recommendation_of_their_models_and_a_placement(tmp_path: Path) -> None:
    first, *lines = newcomer.commands()
    newcomer.write_inputs(tmp_path)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TAUT_", "MLFLOW_"))}

    walked, advice = newcomer.walk(
        tmp_path, lines, env | {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "OMP_NUM_THREADS": "1"}
    )

    assert first == "make setup && . .venv/bin/activate"
    assert len(walked) == 5
    assert walked[-1]["command"] == "taut schedule cluster.json"
    assert newcomer.shortfalls(advice) == []


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {"setup", "demo", "test", "test-slow", "check", "bench"} <= set(targets)

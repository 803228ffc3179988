"""The manual of the service: its examples are carried out, its commands exist, its tables are those of the code."""

import doctest
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from modelserve.api.app import OPERATIONS
from pipelines.cli import app
from pipelines.cli.commands import LateCommand
from tests.contract.frozen import differences
from tests.modelserve.running import running
from tests.serving_examples import ADDRESS, PAGE, carry_out, examples, last_answer_id
from tests.serving_tables import with_tables

TEXT = PAGE.read_text(encoding="utf-8")
SAID_ELSEWHERE = {"/v2"}
"""Calls without an example: it answers the version of the package, which moves with every release."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    with running(tmp_path) as address:
        yield address


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples call with curl, which is not on this machine")
def test_every_example_gives_the_answer_shown(service: str, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    answer_id, wrong = "", []

    for example in examples(TEXT):
        if example.kind == "pycon":
            wrong += python_differences(example.code.replace(ADDRESS, service), names, example.line)
        elif example.runs:
            said = carry_out(example.code, service, tmp_path, answer_id)
            answer_id = last_answer_id(said, answer_id)
            if example.answer is None:
                continue
            if example.form == "json":
                found = differences(json.loads(example.answer or ""), json.loads(said))
            else:
                found = [] if said == (example.answer or "") else [f"shown {example.answer!r}, found {said!r}"]
            wrong += [f"line {example.line}: {each}" for each in found]
    names["client"].close()

    assert wrong == [], "write the answers anew with `python -m tests.serving_examples`"


def python_differences(code: str, names: dict[str, object], line: int) -> list[str]:
    """Run an example of Python with the names of those before; return what it prints that is not shown."""
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(code, {}, "serving.md", str(PAGE), line)
    test.globs = names
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=said.append, clear_globs=False)
    return said


def test_the_tables_are_those_of_the_code() -> None:
    assert with_tables(TEXT) == TEXT, "write them anew with `python -m tests.serving_tables`"


def test_every_call_has_an_example() -> None:
    called = {found.partition("?")[0] for found in re.findall(rf"{ADDRESS}(/[^\s\"')]*)", TEXT)}
    called |= {
        f"/{found}" for line in re.findall(r"^for path in (.*); do$", TEXT, re.MULTILINE) for found in line.split()
    }

    missing = {
        each.path
        for each in OPERATIONS
        if not any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each.path), path) for path in called)
    }

    with_version = {each.path for each in OPERATIONS if "/versions/" in each.path}
    assert missing - with_version == SAID_ELSEWHERE


@pytest.mark.parametrize("command", re.findall(r"^(taut [a-z]+.*)$", TEXT, re.MULTILINE))
def test_shown_commands_exist_with_their_options(command: str) -> None:
    known: dict[str, Any] = typer.main.get_group(app).commands
    _, name, *words = shlex.split(command)

    shown = known[name].made() if isinstance(known[name], LateCommand) else known[name]
    options = {option for parameter in shown.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options

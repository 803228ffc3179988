"""What users of the commands and of the HTTP calls see, on a small lake, as it was frozen."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from tests.contract.frozen import Entry, brief, check, entries, summary

COMMANDS, CALLS = "commands.jsonl", "calls.jsonl"
LAST = {"answer_id": ""}
"""The id of the newest answer, which stands for `ANSWER_ID` in later calls."""

pytestmark = pytest.mark.slow


def names(entry: Entry) -> str:
    return str(entry["name"])


@pytest.mark.parametrize("entry", entries(COMMANDS), ids=names)
def test_a_command_answers_as_frozen(entry: Entry, house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house)
    for name, text in entry.get("files", {}).items():
        (house / name).write_text(text, encoding="utf-8")

    done = CliRunner().invoke(app, entry["argv"], input=entry.get("stdin"))

    answer: dict[str, Any] = {"exit": done.exit_code}
    if done.exit_code:
        answer["stderr"] = done.stderr.replace(str(house), "HOUSE")
    else:
        answer["stdout"] = _seen(done.stdout)
    check(COMMANDS, entry, answer)


def _seen(text: str) -> object:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return brief(summary(found) if isinstance(found, list) and all(isinstance(row, dict) for row in found) else found)


@pytest.mark.parametrize("entry", entries(CALLS), ids=names)
def test_a_call_answers_as_frozen(entry: Entry, client: httpx2.Client) -> None:
    response = client.request(
        entry["method"],
        entry["path"],
        content=entry.get("content"),
        json=json.loads(json.dumps(entry.get("json")).replace("ANSWER_ID", LAST["answer_id"])),
        headers=entry.get("headers"),
    )

    kind = response.headers.get("content-type", "")
    answer = response.json() if "json" in kind and response.content else re.sub(r"\s+", " ", response.text)[:200]
    LAST["answer_id"] = answer.get("answer_id", LAST["answer_id"]) if isinstance(answer, dict) else LAST["answer_id"]
    check(CALLS, entry, {"status": response.status_code, "type": kind, "body": brief(answer)})

"""One small run of every study: its headline figures as they were frozen, before the first cut.

Of what was frozen, rows of retired arms are left out: other targets and ties of `fragmentation`, the rolling plan
and programme of `sites` and its rules that stand in no page.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from tests.contract.conftest import ROOT
from tests.contract.frozen import Entry, check, entries
from tests.contract.made_up_energy import write_energy

HEADLINES = "headlines.jsonl"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(house: Path) -> Path:
    """Return the folder of the small lake, with made-up measurements of energy beside it."""
    if not (house / "energy").exists():
        write_energy(house / "energy", ROOT / "data" / "power" / "fitted_models.toml")
    return house


@pytest.mark.parametrize("entry", entries(HEADLINES), ids=lambda entry: str(entry["name"]))
def test_a_study_has_the_frozen_headlines(entry: Entry, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("TAUT_TRACES", str(place / "nothing"))  # no published results to compare with

    done = CliRunner().invoke(app, ["study", *entry["argv"], "--format", "json"])

    assert done.exit_code == 0, done.stderr
    check(HEADLINES, entry, headlines(json.loads(done.stdout), entry))


def headlines(rows: list[dict[str, Any]], entry: Entry) -> list[dict[str, Any]]:
    """Return the entry's fields of the rows that have one of the values that it names, in the order of the rows."""
    where, fields = entry["where"], entry["fields"]
    kept = [row for row in rows if all(row.get(name) in values for name, values in where.items())]
    return [{name: row.get(name) for name in fields} for row in kept]

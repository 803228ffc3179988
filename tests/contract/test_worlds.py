"""Schedules, to the run, as they were frozen."""

import pytest

from tests.contract.frozen import Entry, check, entries
from tests.contract.worlds import schedule


@pytest.mark.parametrize("entry", entries("worlds.jsonl"), ids=lambda entry: str(entry["name"]))
def test_a_schedule_is_as_frozen(entry: Entry) -> None:
    check("worlds.jsonl", entry, schedule(entry["world"]))

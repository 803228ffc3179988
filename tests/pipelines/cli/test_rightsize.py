"""`taut rightsize` on a lake of a trace with use and of one without."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app

WIDEST = 120
Taut = Callable[..., Result]


@pytest.fixture
def taut(lake: Path) -> Taut:
    def run(*arguments: str, trace: str = "pai-synth") -> Result:
        return CliRunner().invoke(app, ["rightsize", "--lake", str(lake), "--trace", trace, *arguments])

    return run


@pytest.mark.parametrize("by", ["group", "user", "type"])
def test_a_table_fits_a_screen_and_is_cut_to_the_worst(taut: Taut, by: str) -> None:
    result = taut("--by", by)
    assert result.exit_code == 0, result.stderr
    heading, _, *lines = result.stdout.splitlines()
    assert heading.split()[:2] == ["severity", by]
    assert max(map(len, lines)) <= WIDEST
    assert 10 <= len(lines) <= 30  # a line for each resource of ten rows
    assert "reclaimable: " in result.stderr
    assert "severity: high marks the worst rows" in result.stderr


def test_json_is_a_list_of_flat_objects_with_every_row(taut: Taut) -> None:
    rows = json.loads(taut("--format", "json").stdout)
    assert len(rows) > 10
    assert not any(isinstance(value, list | dict) for row in rows for value in row.values())
    assert {"high", "medium", "low", None} == {row["severity"] for row in rows}
    ranks = [(row["recurring"], row["share"]) for row in rows]
    assert ranks == sorted(ranks, reverse=True)
    assert {row["severity"] for row in rows if not row["recurring"]} <= {"low", None}
    assert {row["cpu_cores_reason"] for row in rows} >= {"shrunk", "floor", "cold_start"}


def test_the_table_and_the_help_say_what_targets_rest_on(taut: Taut) -> None:
    heading, _, *lines = taut().stdout.splitlines()
    assert heading.split()[2:9] == ["role", "resource", "request", "target", "slack_h", "slack", "reason"]
    assert all(re.search(r" (group|user|too few) \d+ ", line) for line in lines)
    told = " ".join(CliRunner().invoke(app, ["rightsize", "--help"], env={"COLUMNS": "300"}).stdout.split())
    assert "rests_on names the measured runs behind the targets" in told.replace("`", "")
    assert "Minimum of measured runs behind a target: the group's own, else its user's" in told


def test_a_printed_name_selects_its_rows_and_what_to_paste(taut: Taut) -> None:
    *_, line = taut().stdout.splitlines()
    name = line.split()[1]
    chosen = json.loads(taut("--only", name, "--format", "json").stdout)
    assert chosen
    assert all((row["group"] or f"@{row['user']}").startswith(name) for row in chosen)
    patch = taut("--only", name, "--patch", "sbatch").stdout
    assert patch.startswith("# ")
    assert chosen[0]["role"] in patch
    assert taut("--only", "no-such-group").exit_code == 2


def test_a_window_takes_fewer_runs(taut: Taut) -> None:
    def runs(*options: str) -> int:
        return sum(row["runs"] for row in json.loads(taut("--format", "json", *options).stdout))

    assert 0 < runs("--since", "1970-02-15") < runs()
    assert runs("--since", "1970-02-15") + runs("--until", "1970-02-15") == runs()


def test_a_trace_without_use_says_what_is_needed(taut: Taut) -> None:
    result = taut(trace="philly")
    assert result.exit_code == 1
    assert "no measured run among" in result.stderr
    assert "expected a trace whose usage table" in result.stderr

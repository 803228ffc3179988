"""`taut stats`: what it prints, in which forms, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.lake.ingest import ingest
from pipelines.statistics import STATISTICS
from tests.pipelines.conftest import PHILLY

Taut = Callable[..., Result]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of four jobs of Philly, and of the same under another name."""
    folder = tmp_path_factory.mktemp("stats")
    ingest("philly", PHILLY.write(folder / "raw"), folder / "lake")
    ingest("philly", folder / "raw", folder / "lake", as_name="ours")
    return folder / "lake"


@pytest.fixture
def taut(lake: Path) -> Taut:
    def run(*arguments: str, trace: str | None = "philly") -> Result:
        named = [] if trace is None else ["--trace", trace]
        return CliRunner().invoke(app, ["stats", *arguments, "--lake", str(lake), *named])

    return run


def test_one_statistic_as_a_table_stands_upright(taut: Taut) -> None:
    result = taut("run_time")
    assert result.exit_code == 0, result.stderr
    lines = dict(line.split() for line in result.stdout.splitlines()[2:])
    assert lines["jobs"] == "2"
    assert set(lines) >= {"mean_s", "p50_s", "over_1h_share"}


def test_rows_that_no_split_tells_apart_all_stand_there(taut: Taut) -> None:
    lines = taut("utilisation_by_machine_type").stdout.splitlines()
    rows = json.loads(taut("utilisation_by_machine_type", "--format", "json").stdout)
    assert len(rows) > 1
    assert len(lines) == len(rows) + 2


def test_a_cluster_and_several_splits(taut: Taut) -> None:
    arguments = ("status_counts", "--cluster", "philly", "--by", "vc", "--by", "user", "--format", "json")
    assert {(row["vc"], row["user"]) for row in json.loads(taut(*arguments).stdout)} == {
        ("6214e9", "ce2f4c"),
        ("6214e9", None),
    }


def test_what_the_trace_does_not_tell_is_said(taut: Taut) -> None:
    both = taut("run_time", "group_recurrence")
    assert both.exit_code == 0
    assert "group_recurrence: jobs.group is null in all 4 rows of philly (no job has a group)" in both.stderr
    alone = taut("group_recurrence")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "philly has no rows for any of: group_recurrence" in alone.stderr


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_the_list_has_every_definition(taut: Taut, form: str) -> None:
    stdout = taut("--list", "--format", form, trace=None).stdout
    for statistic in STATISTICS.values():
        assert statistic.name in stdout
        assert statistic.definition.split(":")[0] in stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "no statistic 'nope'; expected one of period"),
        (["run_time", "--by", "colour"], "cannot split by 'colour'; expected one of cluster"),
        (["--list", "--by", "user"], "--list cannot be combined with names"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(taut: Taut, arguments: list[str], said: str) -> None:
    result = taut(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_which_trace_must_be_said(taut: Taut) -> None:
    result = taut("run_time", trace=None)
    assert result.exit_code == 2
    assert "choose one with --trace" in result.stderr


def test_a_cluster_that_is_not_there(taut: Taut) -> None:
    result = taut("run_time", "--cluster", "x")
    assert result.exit_code == 1
    assert "no cluster 'x' in philly; it has philly" in result.stderr

"""The time zone of a trace is the one in its mapping or format, stored with it, and never follows from its name."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import IngestReport, check, ingest
from pipelines.lake.lake import Lake
from pipelines.lake.sources import SOURCES
from tests.pipelines.lake.generic.own_rows import mapping_text, own_files

NAME = "pai-x"


def ingested(place: Path) -> IngestReport:
    """Ingest eight jobs, one a day, submitted at 8:00 in Berlin, under a name that begins like a published trace's."""
    folder, mapping = own_files(place, "csv")
    mapping.write_text(mapping_text("csv", more='zone = "Europe/Berlin"\n'))
    with opened_source(mapping, str(folder)) as opened:
        return ingest(opened.source, opened.folder, place / "lake", as_name=NAME)


def test_local_hours_are_those_of_the_mapping(tmp_path: Path) -> None:
    assert ingested(tmp_path).manifest.zone == "Europe/Berlin"

    with Lake(tmp_path / "lake") as lake:
        found = lake.connect().execute("SELECT DISTINCT zone, hour(submit_local) FROM jobs_with_usage").fetchall()
    assert found == [("Europe/Berlin", 8)]


@pytest.mark.parametrize(("until", "runs"), [("2024-03-02T07:59:59", 1), ("2024-03-02T08:00:01", 2)])
def test_dates_on_the_command_line_are_those_of_the_mapping(tmp_path: Path, until: str, runs: int) -> None:
    ingested(tmp_path)

    asked = ["rightsize", "--lake", str(tmp_path / "lake"), "--until", until, "--format", "json"]
    done = CliRunner().invoke(app, asked)

    assert sum(row["runs"] for row in json.loads(done.stdout)) == runs


def test_a_time_that_a_clock_change_skips_is_quarantined_with_the_zone_as_cure(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,at\na,2024-03-31T01:30:00\nb,2024-03-31T02:30:00\n")
    (tmp_path / "m.toml").write_text(
        '[jobs]\nzone = "Europe/Berlin"\n[jobs.columns]\njob_id = "id"\nsubmit_ts = "at"\n'
    )
    with opened_source(tmp_path / "m.toml", str(tmp_path / "jobs.csv")) as opened:
        [problem] = check(opened.source, opened.folder, tmp_path / "lake").problems

    assert (problem.rule, problem.rows, problem.first) == ("unparsable_submit_ts", 1, "line 3")
    assert "that no clock change of Europe/Berlin skips" in problem.cure


def test_published_traces_keep_their_zones() -> None:
    zones = {name: source.zone for name, source in SOURCES.items()}

    chinese = dict.fromkeys(("pai", "helios"), "Asia/Shanghai")
    assert zones == {**chinese, "philly": "America/Los_Angeles", "openb": "UTC"}

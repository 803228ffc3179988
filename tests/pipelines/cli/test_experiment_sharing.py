"""The studies of shared GPUs on the command line: what they print, and what is refused before any work."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from tests.pipelines.studies.fragmentation.tiny import tiny_lake

RUN = CliRunner()


def test_a_study_prints_its_rows_and_says_what_they_rest_on(tmp_path: Path) -> None:
    lake = tiny_lake(tmp_path, "default")
    command = ["experiment", "fgd-large-jobs", "--lake", str(lake), "--rule", "used_first", "--seeds", "2"]

    found = RUN.invoke(app, [*command, "--processes", "1", "--format", "json"])

    assert found.exit_code == 0, found.stderr
    rows = json.loads(found.stdout)
    assert {(row["study"], row["trace"], row["rule"]) for row in rows} == {("large jobs", "openb", "used_first")}
    assert "note: used_first: among equals machines in use before idle ones" in found.stderr


@pytest.mark.parametrize("study", ["fgd-departures", "fgd-shrinking", "fgd-online", "fgd-large-jobs"])
def test_a_folder_that_holds_anything_is_refused_before_the_lake_is_opened(study: str, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    found = RUN.invoke(app, ["experiment", study, "--lake", str(tmp_path / "none"), "--out", str(tmp_path)])
    assert found.exit_code != 0
    assert "found it not empty" in found.stderr

"""A check says what an ingest would do, with places and cures, and leaves no trace of itself."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import SourceError
from pipelines.lake.ingest import check, ingest
from pipelines.lake.reading import CURES, UNPARSABLE, cure_of
from pipelines.lake.sources import SOURCES
from tests.pipelines.conftest import PUBLISHED
from tests.pipelines.lake.generic.own_rows import BAD, ROWS, own_files

GENERIC = ("generic", "--mapping", "mapping.toml")


def state(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("source", PUBLISHED)
def test_a_check_counts_what_an_ingest_quarantines_and_writes_nothing(source: str, tmp_path: Path) -> None:
    trace = PUBLISHED[source]
    folder = trace.write(tmp_path / "from", trace.spoilers)
    before = state(tmp_path)

    report = check(source, folder, tmp_path / "lake")

    assert report.failure is None
    assert state(tmp_path) == before
    assert not (tmp_path / "lake").exists()
    manifest = ingest(source, folder, tmp_path / "lake").manifest
    assert report.manifest is not None
    assert report.manifest.accounts == manifest.accounts
    found = {(p.cluster, p.file, p.rule): p.rows for p in report.problems}
    assert found == {(a.cluster, a.file, rule): rows for a in manifest.accounts for rule, rows in a.quarantined.items()}


@pytest.mark.parametrize("source", PUBLISHED)
def test_places_are_lines_of_the_file(source: str, tmp_path: Path) -> None:
    trace = PUBLISHED[source]
    folder = trace.write(tmp_path / "from", trace.spoilers)

    for problem in check(source, folder, tmp_path / "lake").problems:
        word, _, numbers = problem.first.partition(" ")
        first = int(numbers.split(", ")[0])
        if word == "line":
            line = (folder / problem.file).read_text().splitlines()[first - 1]
            shown = re.findall(r"(?<!fields )= ([^,{]+)", problem.found)
            assert all(value in line for value in shown)
            assert shown or " is missing" in problem.found or problem.found == line


@pytest.mark.parametrize("name", SOURCES)
def test_every_rule_has_a_cure(name: str) -> None:
    source = SOURCES[name]
    rules = {rule.name for table in source.tables for rule in (*table.rules, *table.links)} | {"duplicate_key"}

    assert {rule for rule in rules if rule not in CURES and not rule.startswith(UNPARSABLE)} == set()
    assert all(cure_of(source, rule) for rule in rules)


def test_a_check_fails_as_the_ingest_would(tmp_path: Path) -> None:
    folder = PUBLISHED["pai"].write(tmp_path / "from", PUBLISHED["pai"].spoilers)

    report = check("pai", folder, tmp_path / "lake", strict_share=0.0)

    with pytest.raises(SourceError) as caught:
        ingest("pai", folder, tmp_path / "lake", strict_share=0.0)
    assert report.failure == str(caught.value)
    assert report.problems


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["ingest", *arguments])


def test_the_command_prints_each_problem_and_exits_by_what_would_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_files(tmp_path, "csv", (*ROWS, *BAD.values()))
    monkeypatch.chdir(tmp_path)

    passed = run(*GENERIC, "--from", "from", "--check", "--format", "json")
    refused = run(*GENERIC, "--from", "from", "--check", "--strict", "0.1", "--format", "json")

    assert (passed.exit_code, refused.exit_code) == (0, 1)
    assert passed.stdout == refused.stdout
    rows = {row["rule"]: row for row in json.loads(passed.stdout)}
    assert set(rows) == set(BAD)
    assert rows["unparsable_submit_ts"]["first"] == f"line {2 + len(ROWS)}"
    assert "column 'Submit'" in rows["unparsable_submit_ts"]["cure"]
    assert "column 'State' should be a state of Slurm's" in rows["unparsable_status"]["cure"]
    assert "--strict" in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"from", "mapping.toml"}


def test_a_mapping_goes_with_generic_and_with_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files(tmp_path, "csv")
    monkeypatch.chdir(tmp_path)

    assert run("generic", "--from", "from").exit_code == 2
    assert run("pai", "--mapping", "mapping.toml", "--from", "from").exit_code == 2
    assert run(*GENERIC, "--from", "nowhere").exit_code == 1
    done = run(*GENERIC, "--from", "from/jobs", "--lake", "lake", "--as", "own")
    assert (done.exit_code, "ingested: trace own" in done.stderr) == (0, True)

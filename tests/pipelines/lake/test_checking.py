"""A check says what an ingest would do, with places and cures; a row with several faults breaks all their rules."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import SourceError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import check, ingest
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account
from pipelines.lake.reading import CURES, UNPARSABLE, cure_of
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.source import RawTable, Rule, Source, one_cluster, text
from tests.pipelines.conftest import PUBLISHED, Spoiler
from tests.pipelines.lake.generic.own_rows import BAD, ROWS, own_files, row

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


TASKS = "pai_task_table.csv"
FAULTS = {
    "unparsable_inst_num": "inst_num = 1.5",
    "unparsable_plan_cpu": "plan_cpu = six",
    "unknown_status": "status = Exploded",
    "negative_request": "plan_mem = -1.0",
}
SPOILED = "j4,w,1.5,Exploded,1.0,2.0,six,-1.0,1.0,T4"


def account_of(accounts: tuple[Account, ...], file: str) -> Account:
    [found] = (account for account in accounts if account.file == file)
    return found


def test_a_row_breaks_all_its_rules_and_counts_once_as_a_row(tmp_path: Path) -> None:
    folder = PUBLISHED["pai"].write(tmp_path / "from", (Spoiler(rule="", file=TASKS, row=SPOILED),))

    manifest = ingest("pai", folder, tmp_path / "lake").manifest

    [held] = Lake(tmp_path / "lake").table("quarantine").collect().rows(named=True)
    assert (held["rule"].split(", "), held["raw"]) == (list(FAULTS), SPOILED)
    account = account_of(manifest.accounts, TASKS)
    assert account.quarantined == dict.fromkeys(sorted(FAULTS), 1)
    assert (account.rows_quarantined, manifest.rows_quarantined) == (1, 1)
    assert account.rows_in == account.rows_good + 1


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"Submit": "01.03.2024", "State": "WEIRD", "Gpu": "-1"}, {
            "unparsable_submit_ts": "submit_ts = 01.03.2024",
            "unparsable_status": "status = WEIRD",
            "negative": "used_gpus = -1",
        }),
        ({"JobID": "", "Gpu": "1e12"}, {"missing_key": "job_id is missing", "use_beyond_measure": "used_gpus = 1e12"}),
        ({"End": "2024-02-01T00:00:00"}, {
            "end_before_start": "end_ts = 2024-02-01T00:00:00, start_ts = 2024-03-02T08:01:00",
        }),
    ],
    ids=["unparsable", "beyond", "order"],
)  # fmt: skip
def test_own_rows_are_shown_with_their_values(changed: dict[str, str], found: dict[str, str], tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv", (*ROWS, row(29, **changed)))

    opened = opened_source(mapping, str(folder))
    report = check(opened.source, opened.folder, tmp_path / "lake")

    assert {problem.rule: problem.found for problem in report.problems} == found
    assert report.manifest is not None
    assert report.manifest.rows_quarantined == 1


def test_a_key_that_repeats_and_a_row_as_a_whole_are_shown(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv", (*ROWS, row(0)))
    with (folder / "jobs").open("a") as stream:
        stream.write("7,u\n")

    opened = opened_source(mapping, str(folder))
    report = check(opened.source, opened.folder, tmp_path / "lake")

    assert {problem.rule: problem.found for problem in report.problems} == {
        "duplicate_key": "job_id = 1000",
        "column_count": "7,u",
    }


def test_rules_about_another_table_are_all_named(tmp_path: Path) -> None:
    listed = RawTable(name="listed", stems=("listed",), header=("id",), columns=(text("id"),), feeds="machines")
    links = tuple(
        Rule(name=f"no_{name}", bad=f"NOT EXISTS (SELECT 1 FROM listed l WHERE l.id = r.{name})")
        for name in ("one", "other")
    )
    pairs = replace(listed, name="pairs", stems=("pairs",), header=("one", "other"), links=links)
    pairs = replace(pairs, columns=(text("one"), text("other")))
    source = Source(name="made", clusters=one_cluster("c"), tables=(listed, pairs), outputs={})
    (tmp_path / "listed.csv").write_text("id\nx\n")
    (tmp_path / "pairs.csv").write_text("one,other\nx,x\ny,z\nx,z\n")

    report = check(source, tmp_path, tmp_path / "lake")
    ingest(source, tmp_path, tmp_path / "lake")

    held = Lake(tmp_path / "lake").table("quarantine").collect().sort("row")
    assert held.select("rule", "raw").rows() == [("no_one, no_other", "y,z"), ("no_other", "x,z")]
    assert {(p.rule, p.rows, p.found) for p in report.problems} == {
        ("no_one", 1, "one = y"),
        ("no_other", 2, "other = z"),
    }

"""A row with several faults breaks all their rules, is one row of the quarantine, and shows each value at fault."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import check, ingest
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account
from pipelines.lake.sources.source import RawTable, Rule, Source, one_cluster, text
from tests.pipelines.conftest import PUBLISHED, Spoiler
from tests.pipelines.lake.generic.own_rows import ROWS, own_files, row

TASKS = "pai_task_table.csv"
FAULTS = {
    "unparsable_inst_num": "inst_num = 1.5",
    "unparsable_plan_cpu": "plan_cpu = six",
    "unknown_status": "status = Exploded",
    "negative_request": "plan_mem = -1.0",
}
BAD = "j4,w,1.5,Exploded,1.0,2.0,six,-1.0,1.0,T4"


def account_of(accounts: tuple[Account, ...], file: str) -> Account:
    [found] = (account for account in accounts if account.file == file)
    return found


def test_a_row_breaks_all_its_rules_and_counts_once_as_a_row(tmp_path: Path) -> None:
    folder = PUBLISHED["pai"].write(tmp_path / "from", (Spoiler(rule="", file=TASKS, row=BAD),))

    manifest = ingest("pai", folder, tmp_path / "lake").manifest

    [held] = Lake(tmp_path / "lake").table("quarantine").collect().rows(named=True)
    assert (held["rule"].split(", "), held["raw"]) == (list(FAULTS), BAD)
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

    with opened_source(mapping, str(folder)) as opened:
        report = check(opened.source, opened.folder, tmp_path / "lake")

    assert {problem.rule: problem.found for problem in report.problems} == found
    assert report.manifest is not None
    assert report.manifest.rows_quarantined == 1


def test_a_key_that_repeats_and_a_row_as_a_whole_are_shown(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv", (*ROWS, row(0)))
    with (folder / "jobs").open("a") as stream:
        stream.write("7,u\n")

    with opened_source(mapping, str(folder)) as opened:
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

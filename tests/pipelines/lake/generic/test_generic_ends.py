"""Rows without an end are reported with their cure, and waits that a table does not record are null, not zero."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import check, ingest
from pipelines.lake.lake import Lake

TEXT = "id,at,start,end,took,wait,how\na,1000,1000,1600,600,0,OK\nb,2000,2000,2060,60,0,OK\n"
LEAST = '[jobs.columns]\njob_id = "id"\nsubmit_ts = { column = "at", time = "epoch_s" }\n'
RUN, WAIT = 'run_s = "took"\n', 'queue_s = "wait"\n'
STARTED_AT, STARTED, ENDED = (
    f'{name} = {{ column = "{column}", time = "epoch_s" }}\n'
    for name, column in (("start_ts", "at"), ("start_ts", "start"), ("end_ts", "end"))
)
NO_END = "no row has an end"
NO_WAIT = "main: every job starts when submitted: the queueing delay is unknown, queue_s is null"


def warned(place: Path, columns: str, text: str = TEXT) -> tuple[str, ...]:
    """Check, and ingest, a table; return the warnings, which are the same for both."""
    (place / "jobs").write_text(text)
    (place / "m.toml").write_text(f'[jobs]\nfile = "jobs"\n{LEAST}{columns}')
    with opened_source(place / "m.toml", str(place)) as opened:
        report = check(opened.source, opened.folder, place / "lake")
        manifest = ingest(opened.source, opened.folder, place / "lake").manifest
    assert report.manifest is not None
    assert manifest.warnings == report.manifest.warnings
    return report.manifest.warnings


def jobs_of(place: Path) -> pl.DataFrame:
    return Lake(place / "lake").table("jobs").collect().sort("job_id")


@pytest.mark.parametrize(
    ("columns", "cure"),
    [
        ("", "map end_ts, or start_ts and run_s"),
        (RUN, "map start_ts, too; if waits are unknown, to the column of submit_ts"),
        (STARTED, "map end_ts, or run_s"),
        (STARTED + ENDED + 'status = { value = "running" }\n', "is every job running?"),
    ],
)
def test_rows_without_an_end_are_reported_with_the_cure(columns: str, cure: str, tmp_path: Path) -> None:
    [said] = [each for each in warned(tmp_path, columns) if NO_END in each]

    assert cure in said
    assert jobs_of(tmp_path)["end_ts"].null_count() == 2


def test_a_start_taken_from_the_submission_gives_ends_and_unknown_waits(tmp_path: Path) -> None:
    assert warned(tmp_path, STARTED_AT + RUN) == (NO_WAIT,)

    jobs = jobs_of(tmp_path)
    assert jobs["end_ts"].dt.epoch("s").to_list() == [1600, 2060]
    assert jobs["queue_s"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("columns", "text", "waits"),
    [
        (STARTED + ENDED, TEXT, [None, None]),
        (STARTED + ENDED, TEXT.replace("2000,2000", "2000,2010"), [0.0, 10.0]),
        (STARTED + ENDED + WAIT, TEXT, [0.0, 0.0]),
    ],
    ids=["no job waits", "one job waits", "a column of waits"],
)
def test_a_wait_is_zero_only_if_the_table_records_waits(
    columns: str, text: str, waits: list[float | None], tmp_path: Path
) -> None:
    said = warned(tmp_path, columns, text)

    assert jobs_of(tmp_path)["queue_s"].to_list() == waits
    assert (NO_WAIT in said) == (waits == [None, None])

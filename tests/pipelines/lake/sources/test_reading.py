"""DuckDB reads text without quotes: every line is a row or a reject, whatever is in the file, and keeps its number."""

import random
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import load

Quarantined = list[tuple[str, int, str]]


def loaded(data: bytes, stage: Path) -> tuple[list[str], Quarantined]:
    """Return the ids of the good rows, in order, and the quarantined rows, of a file of PAI's jobs."""
    [job] = [replace(table, links=()) for table in SOURCES["pai"].tables if table.name == "job"]
    plain = stage / "plain"
    plain.write_bytes(data)
    source = Source(name="pai", clusters=SOURCES["pai"].clusters, tables=(job,), outputs={})
    with duckdb.connect(config={"threads": 2}) as work:
        [account] = load(work, source, "c", [Published(table=job, file="f", plain=plain)], stage)
        good = [row[0] for row in work.execute("SELECT job_name FROM job").fetchall()]
        bad = work.execute('SELECT rule, "row", raw FROM quarantine ORDER BY "row"').fetchall()
    assert account.rows_in == len(good) + len(bad)
    return good, bad


ROW = "{},i,u,Terminated,1.0,2.0"
A, B = ROW.format("a"), ROW.format("b")


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        (f"{A}\r\n{B}\r\n", []),
        (f"{A}\r\n{B}\n", []),
        (f"{A}\r{B}\n\n", []),
        (f"\ufeff{A}\n{B}", []),
        (f" {A} \n{B}\n", []),
        (f"{A},\n{B}\n", [("column_count", 1, f"{A},")]),
        (f"{A}\n1,2\n{B}\n,1\n", [("column_count", 2, "1,2"), ("column_count", 4, ",1")]),
        (f"{A}\n{B},1,2,3,4\n{B}\nx\n", [("column_count", 2, f"{B},1,2,3,4"), ("column_count", 4, "x")]),
        (f'{A}\n{B[:-3]}"2"\n{B}\n', [("unparsable_end_time", 2, f'{B[:-3]}"2"')]),
        (f"{A}\nx\udcff,y\n{B}\ny\n", [("unreadable_line", 2, "x?,y"), ("column_count", 4, "y")]),
        (f"{A}\n{'x' * 2_000_001}\n{B}\n", [("too_long", 2, "x" * 2000)]),
        (f"{A}\n{B}\n{A}\n", [("duplicate_key", 3, A)]),
    ],
)
def test_every_line_is_a_row_or_in_quarantine(text: str, bad: Quarantined, tmp_path: Path) -> None:
    assert loaded(text.encode("utf-8", "surrogateescape"), tmp_path) == (
        ["a", "b"] if text[len(A) :][:1] != "," else ["b"],
        bad,
    )


def test_rows_keep_their_numbers_in_a_file_read_by_several_threads(tmp_path: Path) -> None:
    rng = random.Random(5)
    bad = ("x", "j,i,u,Lost,1.0,2.0", "j7,i,u,Failed,1.0,2.0", "j,i,u,Failed,one,2.0", "j,i,u,Failed,1.0,2.0,3.0,4.0")
    good = (f"j{i},i{i},u,Terminated,{i}.0,{i}.5" for i in range(300_000))
    rows = [rng.choice(bad) if rng.random() < 1e-4 else row for row in good]

    _, quarantined = loaded(("\n".join(rows) + "\n").encode(), tmp_path)

    assert len(quarantined) > 20
    assert all(rows[row - 1] == raw for _, row, raw in quarantined)

"""Plain CSV read by DuckDB alone gives the records that Python's `csv` gives, on seeded files with damage."""

import random
from pathlib import Path
from typing import Final

import duckdb
import pytest

from pipelines.lake.checking import check
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.generic.plain_csv import SCAN_BYTES, plain_csv
from pipelines.lake.generic.records import KEPT_CHARACTERS
from pipelines.lake.generic.text_records import csv_records
from pipelines.lake.ingest import ingest
from pipelines.lake.sources.source import Records
from tests.pipelines.lake.generic.own_rows import BAD, ROWS, mapping_text, own_files, written_as_csv

FIELDS: Final = (
    "1",
    " x ",
    "",
    "NULL",
    "'",
    "a b",
    "Ümlaut",
    "山",
    "{text}",
    "NaN",
    "\t",
    "\\N",
    "#",
    "0" * 3000,
    "\u2028",
)
ODD: Final = ('"', '"q"', "\r", "\0", "\x01", "\n", "\ufffd", "\udcff", "\ufeff", "é" * 40_000)
FILES: Final = 40


def mapping(delimiter: str, *, header: bool, quote: str = '"') -> RowsMapping:
    return RowsMapping(delimiter=delimiter, header=header, quote=quote, columns={})


def spoiled(rng: random.Random, delimiter: str, columns: int) -> str:
    """Return the rows of a CSV file; in one of three files a few fields are odd, or rows have other numbers of them."""
    odd, uneven = rng.random() < 0.3, rng.random() < 0.3
    lines = []
    for _ in range(rng.randrange(1, 30)):
        count = columns + (rng.randrange(-1, 2) if uneven else 0)
        lines.append(delimiter.join(rng.choice(ODD if odd and rng.random() < 0.1 else FIELDS) for _ in range(count)))
    return rng.choice(["\n", "\n", "\n", "\r\n"]).join(lines) + rng.choice(["", "\n", "\n"])


def records(work: duckdb.DuckDBPyConnection, found: Records, columns: int) -> list[tuple[object, ...]]:
    """Return the records that the SQL gives, after checking that the quick SQL gives the same."""
    texts = "".join(f", c{nth}" for nth in range(1, columns + 1))
    numbered = work.execute(f"SELECT row, place, line, fault{texts} FROM {found.numbered} ORDER BY row").fetchall()
    work.execute(f"CREATE OR REPLACE TABLE quick AS SELECT * FROM {found.quick}")
    quick = work.execute(f"SELECT rowid + 1, fault{texts} FROM quick ORDER BY rowid").fetchall()
    assert quick == [(row, *rest) for row, _, _, *rest in numbered]
    return numbered


def by_python(path: Path, rows: RowsMapping, wanted: list[str | int]) -> list[tuple[object, ...]]:
    empty = (None,) * len(wanted)
    return [
        (row, each.place, each.raw[:KEPT_CHARACTERS], each.fault, *(empty if each.fault else each.texts))
        for row, each in enumerate(csv_records(path, "jobs", rows, wanted), start=1)
    ]


def test_it_gives_the_records_that_python_gives(tmp_path: Path) -> None:
    rng, plain, path, work = random.Random(7), 0, tmp_path / "jobs", duckdb.connect(config={"threads": 2})
    for _ in range(FILES):
        delimiter, header, columns = rng.choice(",;|\t,é"), rng.random() < 0.5, rng.randrange(1, 5)
        rows = mapping(delimiter, header=header, quote=rng.choice(['"', '"', "'", ""]))
        names = [f"n{nth}" for nth in range(columns)]
        head = rng.choice(["", "", "\ufeff"]) + delimiter.join(names) + "\n" if header else ""
        path.write_bytes((head + spoiled(rng, delimiter, columns)).encode("utf-8", "surrogateescape"))
        wanted: list[str | int] = [*names] if header else [1]
        rng.shuffle(wanted)

        found = plain_csv(path, "jobs", rows, wanted)

        if found is not None:
            plain += 1
            assert records(work, found, len(wanted)) == by_python(path, rows, wanted)
    assert plain > FILES / 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n",
        "a,b\n1,2\n\n3,4\n",
        'a,b\n1,"2"\n',
        "a,b\r\n1,2\r\n",
        "a,b\n1,\x00\n",
        "a,b\n1,\ufffd\n",
        "a,b\n1," + "x" * 2 * SCAN_BYTES + "\n",
    ],
    ids=["empty", "no_rows", "empty_line", "quote", "carriage_return", "nul", "no_character", "long_field"],
)
def test_it_leaves_other_files_to_python(text: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_bytes(text.encode())

    assert plain_csv(path, "jobs", mapping(",", header=True), ["a"]) is None


def test_it_leaves_bytes_that_are_no_text_to_python(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    for bad in (b"a\n\xff\n", b"a\n\xc3", b"a\n" + "é\n".encode() * SCAN_BYTES + b"\xe2\x82"):
        path.write_bytes(bad)

        assert plain_csv(path, "jobs", mapping(",", header=True), ["a"]) is None


def test_the_lake_and_the_problems_are_those_that_python_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, mapping_file = own_files(tmp_path, "csv")
    written_as_csv(folder / "jobs", [*ROWS, *BAD.values(), ROWS[1]], delimiter="|")
    with (folder / "jobs").open("a") as out:
        out.write("77|too|few\n")
    mapping_file.write_text(mapping_text("csv", more='delimiter = "|"\n'))

    def done(name: str) -> tuple[object, object]:
        with opened_source(mapping_file, str(folder)) as opened:
            manifest = ingest(opened.source, opened.folder, tmp_path / name, as_name="own").manifest
            return manifest, check(opened.source, opened.folder, tmp_path / name, as_name="own").problems

    by_duckdb = done("one")
    monkeypatch.setattr("pipelines.lake.generic.declaration.plain_csv", lambda *_: None)

    assert done("two") == by_duckdb
    assert len(by_duckdb[1]) == len(BAD) + 1

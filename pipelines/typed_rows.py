"""Rows of plain CSV files read by DuckDB's own typed reader: the fast way, that must say what the slow one says.

What the reader rejects is read again line by line by `pipelines.line_rows`, and a file that is not plain altogether.
Called by `pipelines.staging`; that both ways agree is tested on files mutated in every way.
"""

from pathlib import Path
from typing import Final

import duckdb

from pipelines.classification import classified, known_text, loaded
from pipelines.line_rows import allowed_counts, escaped, from_lines, header_lines, numbered
from pipelines.sources.archive import CHUNK_BYTES, plain_lines
from pipelines.sources.source import NULL_TEXTS, RawTable

REREAD: Final = ("CAST", "MISSING COLUMNS", "TOO MANY COLUMNS")
"""What the reader may reject a row for and a second look at its line can settle."""

REJECTS_MOST: Final = 100_000
"""More than these are quicker read line by line; the reader stores no more, and the rows then do not add up."""


def load_typed(work: duckdb.DuckDBPyConnection, table: RawTable, plain: Path, names: int) -> int | None:
    """Load a file's rows into `<table>_all`, in the file's order; return how many the file has.

    None where the file cannot be read this way: nothing is left in `work` then. Rows that the reader rejected come
    last and carry their number; the number of the others follows from their place (`typed_numbers`).
    """
    rows = plain_lines(plain)
    count = _count_of_first(table, plain)
    if rows is None or any(c.text for c in table.columns) or count not in allowed_counts(table, names):
        return None
    rows -= header_lines(table)
    work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, _typed(table, plain, count))}")
    adds_up = _adds_up(work, table, rows)
    _note_gaps(work, table)
    for left in ("rejects", "scan") if adds_up else ("rejects", "scan", "gaps", "all"):
        work.execute(f"DROP TABLE {table.name}_{left}")
    if not adds_up:
        return None
    again = f"(SELECT * FROM {numbered(table, plain)} WHERE row IN (SELECT row FROM {table.name}_gaps))"
    if work.execute(f"SELECT EXISTS (FROM {table.name}_gaps)").fetchone() == (True,):
        work.execute(f"INSERT INTO {table.name}_all {loaded(table, from_lines(table, again, names))}")
    return rows


def typed_numbers(table: RawTable, rows: str) -> str:
    """Return the SELECT of `place`, `rule` and `row`, the number in the file, of rows given with `place` and `row`.

    Of K rejected rows the n-th, in row r of the file, precedes the rows in place r - n and later.
    """
    return f"""(SELECT place, rule, coalesce(row, place + 1 + coalesce(nth, 0)) AS row
        FROM {rows} AS loaded ASOF LEFT JOIN
        (SELECT row - nth AS first, max(nth) AS nth FROM (SELECT row, nth FROM {table.name}_gaps) GROUP BY first) AS gap
        ON loaded.place >= gap.first)"""


def _typed(table: RawTable, plain: Path, count: int) -> str:
    columns, texts = [], []
    for position, column in enumerate(table.columns, start=1):
        present = position <= count
        columns += [f"'c{position}': '{column.read_as}'"] if present else []
        read = f"c{position}" if column.read_as != "VARCHAR" else known_text(column, f"c{position}")
        texts.append(read if present else f"NULL::{column.read_as}")
    columns += [f"'c{position}': 'VARCHAR'" for position in range(len(table.columns) + 1, count + 1)]
    as_text = [i for i, c in enumerate(table.columns[:count], start=1) if c.read_as == "VARCHAR"]
    verbatim = ", ".join(f"'c{i}'" for i in (*as_text, *range(len(table.columns) + 1, count + 1)))
    nulls = ", ".join(f"'{text}'" for text in NULL_TEXTS)
    read = (
        f"read_csv('{escaped(plain)}', skip = {header_lines(table)}, columns = {{{', '.join(columns)}}}, "
        f"auto_detect = false, header = false, delim = ',', quote = '', escape = '', nullstr = [{nulls}], "
        f"force_not_null = [{verbatim}], store_rejects = true, rejects_table = '{table.name}_rejects', "
        f"rejects_scan = '{table.name}_scan', rejects_limit = {REJECTS_MOST})"
    )
    return classified(table, f"(SELECT NULL::BIGINT AS row, * FROM {read})", texts)


def _count_of_first(table: RawTable, plain: Path) -> int:
    with plain.open("rb") as stream:
        for _ in range(header_lines(table)):
            stream.readline(CHUNK_BYTES)
        return stream.readline(CHUNK_BYTES).count(b",") + 1


def _adds_up(work: duckdb.DuckDBPyConnection, table: RawTable, rows: int) -> bool:
    """Tell whether every line of the file is loaded or rejected for a reason that can be settled."""
    kinds = ", ".join(f"'{kind}'" for kind in REREAD)
    found = work.execute(
        f"""SELECT (SELECT count(*) FROM {table.name}_all) + count(DISTINCT line) = ?
            AND coalesce(bool_and(error_type IN ({kinds})), true) FROM {table.name}_rejects""",
        [rows],
    ).fetchone()
    return found == (True,)


def _note_gaps(work: duckdb.DuckDBPyConnection, table: RawTable) -> None:
    work.execute(
        f"""CREATE TABLE {table.name}_gaps AS
        SELECT line - {header_lines(table)} AS row, row_number() OVER (ORDER BY line) AS nth
        FROM (SELECT DISTINCT line FROM {table.name}_rejects)"""
    )

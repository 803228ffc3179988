"""Rows of plain CSV files read by DuckDB's own typed reader: the fast way, that must say what the slow one says.

What the reader rejects is read again line by line by `pipelines.lake.line_rows`, and a file that is not plain
altogether. Called by `pipelines.lake.staging`; that both ways agree is tested on files mutated in every way.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb

from pipelines.lake.classification import classified, known_text, loaded
from pipelines.lake.line_rows import allowed_counts, escaped, from_lines, header_lines, numbered
from pipelines.lake.sources.archive import CHUNK_BYTES, plain_text
from pipelines.lake.sources.source import COMPUTED, RawTable

REREAD: Final = ("CAST", "MISSING COLUMNS", "TOO MANY COLUMNS")
"""What the reader may reject a row for and a second look at its line can settle."""

REJECTS_MOST: Final = 100_000
"""More than these are quicker read line by line; the reader stores no more, and the rows then do not add up."""

UNCLEAR: Final = "unclear"
"""The reader takes `nan`, that stands for a missing number, and `NaN`, that is none, for the same; and a number that
is not finite is none."""


def load_typed(work: duckdb.DuckDBPyConnection, table: RawTable, plain: Path, names: int) -> int | None:
    """Load a file's rows into `<table>_all`, in the file's order; return how many the file has.

    None where the file cannot be read this way: nothing is left in `work` then. Rows that the reader rejected come
    last and carry their number; the number of the others follows from their place (`typed_numbers`).
    """
    counted, fields = plain_text(plain), _fields_of_first(table, plain, names)
    if counted is None or fields is None or any(c.text not in (None, COMPUTED) for c in table.columns):
        return None
    rows, commas = counted.lines - header_lines(table), counted.commas - (names - 1) * header_lines(table)
    typed = _typed(table, plain, fields, padded=counted.padded)
    work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, typed)}")
    adds_up = _adds_up(work, table, rows, commas, fields, one_more=fields + 1 in allowed_counts(table, names))
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


def _typed(table: RawTable, plain: Path, fields: int, *, padded: bool) -> str:
    """Return the SELECT of the file's rows, read as `fields` columns and classified."""
    in_file = {i: c for i, c in enumerate(table.columns, start=1) if c.text is None and i <= fields}
    types = {f"c{i}": in_file[i].read_as if i in in_file else "VARCHAR" for i in range(1, fields + 1)}
    numbers = [name for name, kind in types.items() if kind != "VARCHAR"]
    words = [f"c{i}" for i, column in in_file.items() if column.read_as == "VARCHAR"]
    texts = []
    for position, column in enumerate(table.columns, start=1):
        name = f"c{position}"
        read = known_text(column, f"trim({name})" if padded else name) if name in words else name
        texts.append(read if position in in_file else f"NULL::{column.read_as}")
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    verbatim = ", ".join(f"'{name}'" for name in types if name not in numbers)
    read = (
        f"read_csv('{escaped(plain)}', skip = {header_lines(table)}, columns = {{{columns}}}, auto_detect = false, "
        f"header = false, delim = ',', quote = '', escape = '', nullstr = [{_listed(table.nulls)}], "
        f"force_not_null = [{verbatim}], store_rejects = true, rejects_table = '{table.name}_rejects', "
        f"rejects_scan = '{table.name}_scan', rejects_limit = {REJECTS_MOST})"
    )
    # The reader makes an empty word of whatever stands for a missing number.
    unclear = [f"NOT isfinite({name})" for name in numbers] + [f"{name} = ''" for name in words if table.nulls != ("",)]
    unclear_first = [f"WHEN {' OR '.join(unclear)} THEN '{UNCLEAR}'"] if unclear else []
    finite = tuple(replace(c, value=c.finite or c.value) for c in table.columns)
    rows = f"(SELECT NULL::BIGINT AS row, * FROM {read})"
    return classified(replace(table, columns=finite), rows, texts, unclear_first)


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)


def _fields_of_first(table: RawTable, plain: Path, names: int) -> int | None:
    """Return how many fields to read: as the first row has, or one less where that is allowed and its last is empty."""
    with plain.open("rb") as stream:
        for _ in range(header_lines(table)):
            stream.readline(CHUNK_BYTES)
        first = stream.readline(CHUNK_BYTES).rstrip(b"\n").split(b",")
    allowed = allowed_counts(table, names)
    if len(first) - 1 in allowed and not first[-1]:
        return len(first) - 1
    return len(first) if len(first) in allowed else None


def _adds_up(
    work: duckdb.DuckDBPyConnection, table: RawTable, rows: int, commas: int, fields: int, *, one_more: bool
) -> bool:
    """Tell whether every line of the file is loaded or rejected for a reason that can be settled.

    The reader takes a row with one empty field too many for a good one: where that may not be (`one_more`), the
    commas must add up as well.
    """
    found = work.execute(
        f"""WITH rejected AS (
            SELECT any_value(len(csv_line) - len(replace(csv_line, ',', ''))) AS commas,
                bool_and(error_type IN ({_listed(REREAD)})) AS settled FROM {table.name}_rejects GROUP BY line
        ), accepted AS (
            SELECT count(*) AS rows, count(*) FILTER (rule = '{UNCLEAR}') AS unclear FROM {table.name}_all
        )
        SELECT any_value(rows) + count(settled) = ?
            AND (? OR any_value(rows) * ? + coalesce(sum(commas), 0) = ?)
            AND coalesce(bool_and(settled), true) AND any_value(unclear) = 0
        FROM accepted LEFT JOIN rejected ON true""",
        [rows, one_more, fields - 1, commas],
    ).fetchone()
    return found == (True,)


def _note_gaps(work: duckdb.DuckDBPyConnection, table: RawTable) -> None:
    work.execute(
        f"""CREATE TABLE {table.name}_gaps AS
        SELECT line - {header_lines(table)} AS row, row_number() OVER (ORDER BY line) AS nth
        FROM (SELECT DISTINCT line FROM {table.name}_rejects)"""
    )

"""Load raw rows with DuckDB: SQL that reads a file's lines or columns, converts texts to values and applies the rules.

Two readers give equal results. The fast one, DuckDB's typed CSV reader, needs plain CSV. The slow one reads
any file line by line, and rereads the rows that the fast one rejects. Called by `pipelines.lake.staging`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb

from pipelines.lake.faults import broken_rules
from pipelines.lake.sources.archive import CHUNK_BYTES, plain_text
from pipelines.lake.sources.source import COMPUTED, Column, RawTable


def parsed(table: RawTable, rows: str, texts: Sequence[str]) -> str:
    """Return the SELECT that adds to each row the text (`t1`, `t2`, ...) and the value of each column.

    Parameters
    ----------
    rows
        SQL of the table to read, with the column `row` and the columns that `texts` use.
    texts
        SQL of the text of each column, in the order of `table.columns`.
    """
    named = ", ".join(f"{text} AS t{position}" for position, text in enumerate(texts, start=1))
    values = ", ".join(
        f'{column.value.replace("{text}", f"t{position}")} AS "{column.name}"'
        for position, column in enumerate(table.columns, start=1)
    )
    return f"(WITH texts AS (SELECT *, {named} FROM {rows}) SELECT *, {values} FROM texts)"


def classified(table: RawTable, rows: str, texts: Sequence[str], whole_row: Sequence[str] = ()) -> str:
    """Return the SELECT that gives each row its number, its column values and the rules it breaks (null: none).

    `rows` and `texts` are those of `parsed`, `whole_row` is that of `broken_rules`.
    """
    columns = ", ".join(f'"{c.name}"' for c in table.columns)
    rule = broken_rules(table, whole_row)
    return f"(SELECT row, {columns}, {rule} AS rule FROM {parsed(table, rows, texts)})"


def loaded(table: RawTable, rows: str) -> str:
    """Return the SELECT of the stored columns of `classified` rows: kept columns, hash of the key, broken rule."""
    kept = ", ".join(f'"{name}"' for name in table.kept)
    # Rows with equal hashes are compared by their keys later, since different keys can have equal hashes.
    key = ", ".join(f'"{name}"' for name in table.key)
    return f"SELECT row, {kept}, {f'hash({key}) AS key_hash, ' if key else ''}rule FROM {rows}"


def known_text(column: Column, text: str) -> str:
    """Return the SQL of a text that becomes null if it is one of the column's missing-value texts."""
    missing = " OR ".join(f"{text} = '{t}'" for t in column.missing)  # DuckDB joins with the values of a long IN
    return f"CASE WHEN NOT ({missing}) THEN {text} END"


# Read each line as one column, to be split later, so that a line with too many or too few fields is not lost.
# The characters \1 (delimiter) and \2 (null) do not occur in text files.
LINES = (
    "columns = {'line': 'VARCHAR'}, auto_detect = false, header = false, delim = '\x01', quote = '', escape = '', "
    "nullstr = '\x02', strict_mode = false, ignore_errors = true"
)
JSON_OBJECTS = "format = 'array', maximum_object_size = 67108864"
NO_LINES = "(SELECT NULL::BIGINT AS row, NULL::VARCHAR AS line WHERE false)"


def numbered(table: RawTable, plain: Path, *, keep_rejects: bool = False) -> str:
    """Return the SQL that reads a file as numbered lines (JSON: as numbered elements of its array)."""
    path = escaped(plain)
    if table.json_array:
        rows = f"(SELECT json AS line FROM read_json_objects('{path}', {JSON_OBJECTS}))"
    else:
        kept = f"store_rejects = true, rejects_table = '{table.name}_rejects', rejects_scan = '{table.name}_scan'"
        rejects = f", {kept}" if keep_rejects else ""
        rows = f"read_csv('{path}', skip = {header_lines(table)}, {LINES}{rejects})"
    return f"(SELECT row_number() OVER () AS row, line FROM {rows})"


def from_lines(table: RawTable, lines: str, names: int) -> str:
    """Return the SELECT that splits numbered lines into fields and applies the rules (`classified`).

    `names` is the number of column names in the header.
    """
    counts = ", ".join(str(n) for n in allowed_counts(table, names))
    column_count = [] if table.json_array else [f"WHEN len(f) NOT IN ({counts}) THEN 'column_count'"]
    return classified(table, split_lines(table, lines), line_texts(table), column_count)


def split_lines(table: RawTable, lines: str) -> str:
    """Return the SELECT that splits lines into the list `f` of their fields; a JSON element stays whole."""
    fields = "" if table.json_array else ", string_split(line, ',') AS f"
    return f"(SELECT *{fields} FROM {lines})"


def line_texts(table: RawTable) -> list[str]:
    """Return the SQL of the text of each column in a split line."""
    return [known_text(c, f"trim({c.text or f'f[{position}]'})") for position, c in enumerate(table.columns, start=1)]


def allowed_counts(table: RawTable, names: int) -> tuple[int, ...]:
    """Return the allowed numbers of fields in a row."""
    return table.fields or (names,)


def header_lines(table: RawTable) -> int:
    """Return the number of header lines: 0 or 1."""
    return 0 if table.header is None else 1


def escaped(path: Path) -> str:
    """Return a path escaped for an SQL string."""
    return str(path).replace("'", "''")


def from_records(table: RawTable, records: str) -> str:
    """Return the SELECT that applies the rules to `Records`; the `fault` of a record is the rule it breaks."""
    return classified(table, records, record_texts(table), ["WHEN fault IS NOT NULL THEN fault"])


def record_texts(table: RawTable) -> list[str]:
    """Return the SQL of the text of each column in a record."""
    return [column.text or "NULL" for column in table.columns]


REREAD: Final = ("CAST", "MISSING COLUMNS", "TOO MANY COLUMNS")
"""DuckDB's reasons for rejecting a row for which the row can be read again as a line."""

REJECTS_MOST: Final = 100_000
"""Maximum number of rejects that DuckDB stores; reading a file with more of them line by line is faster."""

UNCLEAR: Final = "unclear"
"""Rule for values that the typed reader cannot judge: `nan` (missing) or `NaN` (bad), and infinities."""


def load_typed(work: duckdb.DuckDBPyConnection, table: RawTable, plain: Path, names: int) -> int | None:
    """Load a file's rows into `<table>_all`, in the file's order; return the number of rows in the file.

    Return None, and leave nothing in `work`, if the typed reader cannot read the file. Rows that it rejected are read
    again as lines; they come last and have their row number. The numbers of the other rows follow from their places in
    the table (`typed_numbers`).
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
    """Return the SELECT of each row's `place` in the loaded table, `rule`, and `row`, its number in the file.

    `rows` has `place` and `row`; `row` is null if the typed reader accepted the row. Rejected rows leave gaps: if the
    n-th rejected row is row r of the file, it comes before the accepted rows at place r - n and later.
    """
    return f"""(SELECT place, rule, coalesce(row, place + 1 + coalesce(nth, 0)) AS row
        FROM {rows} AS loaded ASOF LEFT JOIN
        (SELECT row - nth AS first, max(nth) AS nth FROM (SELECT row, nth FROM {table.name}_gaps) GROUP BY first) AS gap
        ON loaded.place >= gap.first)"""


def _typed(table: RawTable, plain: Path, fields: int, *, padded: bool) -> str:
    """Return the SELECT that reads the file as `fields` typed columns and applies the rules (`classified`)."""
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
    # The reader turns every missing-value text into an empty text, so an empty text may be any of them.
    unclear = [f"NOT isfinite({name})" for name in numbers] + [f"{name} = ''" for name in words if table.nulls != ("",)]
    unclear_first = [f"WHEN {' OR '.join(unclear)} THEN '{UNCLEAR}'"] if unclear else []
    finite = tuple(replace(c, value=c.finite or c.value) for c in table.columns)
    rows = f"(SELECT NULL::BIGINT AS row, * FROM {read})"
    return classified(replace(table, columns=finite), rows, texts, unclear_first)


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)


def _fields_of_first(table: RawTable, plain: Path, names: int) -> int | None:
    """Return the number of fields in the first row, not counting an empty last field; None if it is not allowed."""
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
    """Return whether every line of the file is loaded, or rejected for a reason in `REREAD`.

    The reader accepts a row with one extra empty field. Where such rows are not allowed (`one_more` is false), the
    number of commas in the file must equal the sum over loaded and rejected rows.
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

"""SQL that reads the rows of a file as texts, converts texts to values, and applies the rules of a table.

Text files without quotes and JSON arrays are read here; `pipelines.lake.generic` reads the other formats.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipelines.lake.faults import broken_rules
from pipelines.lake.sources.source import Column, RawTable, Records

COLUMN_COUNT: Final = "column_count"
UNREADABLE: Final = "unreadable_line"
TOO_LONG: Final = "too_long"
MOST_LINE_BYTES: Final = 2_000_000
KEPT_CHARACTERS: Final = 2_000
"""Number of characters of a text row that the quarantine keeps."""

UNQUOTED: Final = (
    "auto_detect = false, header = false, quote = '', escape = '', nullstr = '\x02', null_padding = true, "
    f"max_line_size = {MOST_LINE_BYTES}"
)
"""Options of DuckDB's CSV reader for text without quotes: an empty field is an empty text, an absent field is null."""

JSON_OBJECTS: Final = "format = 'array', maximum_object_size = 67108864"
STRICT: Final = "strict_mode = true"


def separated(
    path: Path, table: str, *, delimiter: str, skip: int, counts: Collection[int], least: int = 0, texts: str = ""
) -> Records:
    """Return the SQL of the fields `c1`, `c2`, ... of a text file without quotes, and of `f`, the list of them.

    Lines that DuckDB rejects (not UTF-8, too long, or with far too many fields) go to `<table>_rejects`.

    Parameters
    ----------
    skip
        Number of header lines.
    counts
        Allowed numbers of fields; rows with another number have a `fault`.
    least
        Least number of columns `c1`, `c2`, ... that the result has.
    texts
        SQL of further columns, each after a comma.
    """
    names = [f"c{n}" for n in range(1, max(*counts, least) + 2)]
    kinds = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
    # Absent fields are the last ones, so the first n are there if the n-th is there and the next is not.
    whole = " OR ".join(f"c{n} IS NOT NULL AND c{n + 1} IS NULL" for n in counts)
    fault = f"CASE WHEN NOT ({whole}) THEN '{COLUMN_COUNT}' END AS fault"
    # Rows at fault have no fields: the bytes of the lake's files depend on which columns have nulls.
    fields = f"CASE WHEN {whole} THEN [{', '.join(names[: max(counts)])}] END AS f"
    mark = delimiter.replace("'", "''")
    options = f"skip = {skip}, delim = '{mark}', columns = {{{kinds}}}, {UNQUOTED}, {STRICT}"
    rejects = f"store_rejects = true, rejects_table = '{table}_rejects', rejects_scan = '{table}_scan'"
    columns = f"*, {fields}, {fault}{texts}"
    read = f"read_csv('{escaped(path)}', {options}"
    # DuckDB needs one thread to number rows, so rows are numbered only where they are read again.
    numbered = f"(SELECT row_number() OVER () - 1 AS nth, * FROM {read}, ignore_errors = true))"
    line = f"left(concat_ws('{mark}', {', '.join(names)}), {KEPT_CHARACTERS})"
    return Records(
        rows=f"(SELECT {columns} FROM {read}, {rejects}))",
        numbered=f"(SELECT {columns}, nth + 1 + {skip} AS place, {line} AS line FROM {numbered})",
        header_lines=skip,
        rejects=True,
    )


def lenient(records: Records) -> Records:
    """Return the SQL for a file with several kinds of line ends, of which DuckDB cuts off fields far too many."""
    rows, numbered = (sql.replace(STRICT, "strict_mode = false") for sql in (records.rows, records.numbered))
    return replace(records, rows=rows, numbered=numbered)


def no_rows(table: RawTable) -> str:
    """Return the SQL of no rows, for a table without a file."""
    fields = ", ".join(f"NULL::VARCHAR AS c{n}" for n in range(1, len(table.columns) + 1))
    return f"(SELECT NULL::VARCHAR AS line, NULL::VARCHAR[] AS f, NULL::VARCHAR AS fault, {fields} WHERE false)"


def json_array(path: Path) -> Records:
    """Return the SQL of the elements of a JSON array."""
    objects = f"(SELECT json AS line, NULL::VARCHAR AS fault FROM read_json_objects('{escaped(path)}', {JSON_OBJECTS}))"
    return Records(rows=objects, numbered=f"(SELECT *, nth + 1 AS place FROM {numbered_by_order(objects)})")


def numbered_by_order(rows: str) -> str:
    """Return the SQL of rows with `nth`, their number from 0."""
    return f"(SELECT row_number() OVER () - 1 AS nth, * FROM {rows})"


def parsed(table: RawTable, rows: str) -> str:
    """Return the SELECT that adds to each row the text (`t1`, `t2`, ...) and the value of each column."""
    columns = list(enumerate(table.columns, start=1))
    texts = ", ".join(f"{_text(column, n)} AS t{n}" for n, column in columns)
    # A level of its own, so that each text is cast once.
    numbers = "".join(f", try_cast(t{n} AS DOUBLE) AS d{n}" for n, column in columns if "{number}" in column.value)
    values = ", ".join(
        f'{column.value.replace("{text}", f"t{n}").replace("{number}", f"d{n}")} AS "{column.name}"'
        for n, column in columns
    )
    return f"(SELECT *, {values} FROM (SELECT *{numbers} FROM (SELECT *, {texts} FROM {rows})))"


def classified(table: RawTable, rows: str) -> str:
    """Return the SELECT that adds to each row its column values and the rules that it breaks (`rule`, null: none)."""
    return f"(SELECT *, {broken_rules(table)} AS rule FROM {parsed(table, rows)})"


def loaded(table: RawTable, rows: str) -> str:
    """Return the SELECT of the stored columns: kept columns, hash of the key, broken rules."""
    kept = ", ".join(f'"{name}"' for name in table.kept)
    # Rows with equal hashes are compared by their keys later, since different keys can have equal hashes.
    key = ", ".join(f'"{name}"' for name in table.key)
    return f"SELECT {kept}, {f'hash({key}) AS key_hash, ' if key else ''}rule FROM {classified(table, rows)}"


def escaped(path: Path) -> str:
    """Return a path escaped for an SQL string."""
    return str(path).replace("'", "''")


def _text(column: Column, place: int) -> str:
    """Return the SQL of a column's text, null if it is one of the column's missing-value texts.

    Without such texts, `column.text` is that SQL already.
    """
    if column.text is not None and not column.missing:
        return column.text
    text = f"trim({column.text or f'c{place}'})"
    missing = " OR ".join(f"{text} = '{each}'" for each in column.missing)  # DuckDB joins with the values of a long IN
    return f"CASE WHEN NOT ({missing}) THEN {text} END"

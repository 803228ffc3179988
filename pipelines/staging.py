"""Executing a source's declaration on one cluster: raw rows to good rows or quarantine, good rows to Parquet.

Which rows are bad and what becomes of the good ones is the source's declaration; committing is `pipelines.ingest`'s.
Called by `pipelines.ingest`, with a scratch DuckDB database of bounded memory.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import duckdb

from features.tables import TABLES
from pipelines.errors import SourceError
from pipelines.lake import DUCKDB_TYPES, QUARANTINE, QUARANTINE_SCHEMA, SCHEMAS
from pipelines.manifest import Account
from pipelines.sources.archive import count_rows, ends_with, header_of
from pipelines.sources.source import Column, RawTable, Source

# One column per line: DuckDB splits lines, and a line is split into fields by a function, so that a row with too many
# or too few fields is a row like any other. \1 and \2 occur in no text file.
LINES = (
    "columns = {'line': 'VARCHAR'}, auto_detect = false, header = false, delim = '\x01', quote = '', escape = '', "
    "nullstr = '\x02', strict_mode = false, ignore_errors = true"
)
JSON_OBJECTS = "format = 'array', maximum_object_size = 67108864"
UNREADABLE = (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.OutOfRangeException)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published table of a cluster: its name for people, and a plain file to read (None: absent)."""

    table: RawTable
    file: str | None
    plain: Path | None


def load(work: duckdb.DuckDBPyConnection, source: Source, cluster: str, published: list[Published]) -> list[Account]:
    """Load every table of a cluster into `work`: the good rows as views, the bad ones in `quarantine`.

    Raises
    ------
    SourceError
        If a file is not in its format at all: another header, malformed JSON, no rows in a required table.
    """
    for macro in source.macros:
        work.execute(macro)
    columns = ", ".join(
        f'"{n}" {DUCKDB_TYPES[t()]}' for n, t in QUARANTINE_SCHEMA.items() if n not in ("trace", "cluster")
    )
    work.execute(f"CREATE TABLE {QUARANTINE} ({columns})")
    accounts = []
    for one in published:
        try:
            accounts.append(_load_table(work, cluster, one))
        except UNREADABLE as error:
            raise SourceError(f"{one.file} is not in its published format: {_first_line(error)}") from error
    return accounts


def write(work: duckdb.DuckDBPyConnection, select: str, table: str, trace: str, cluster: str, target: Path) -> int:
    """Write one canonical table as Parquet, in the order of time and key; return its rows.

    The same rows give the same file: the order is total, and nothing depends on the number of threads.
    """
    schema = SCHEMAS[table]
    known = {name for name, *_ in work.execute(f"DESCRIBE {select}").fetchall()}
    constants = {"trace": f"'{trace}'", "cluster": f"'{cluster}'"}
    casts = ", ".join(
        f'CAST({constants.get(name, _quoted(name) if name in known else "NULL")} AS {DUCKDB_TYPES[dtype]}) AS "{name}"'
        for name, dtype in schema.items()
    )
    order = ", ".join(f'"{name}"' for name in _order_of(table))
    ordered = f"SELECT {casts} FROM ({select}) ORDER BY {order}"
    work.execute(f"COPY ({ordered}) TO '{_escaped(target)}' (FORMAT parquet, COMPRESSION zstd)")
    rows = work.execute(f"SELECT count(*) FROM read_parquet('{_escaped(target)}')").fetchone()
    return int(rows[0]) if rows else 0


def remarks(work: duckdb.DuckDBPyConnection, source: Source) -> list[str]:
    """Return the source's remarks that hold of the loaded rows."""
    held = ((r.text, work.execute(f"SELECT {r.holds}").fetchone()) for r in source.remarks)
    return [text for text, row in held if row and row[0]]


def _load_table(work: duckdb.DuckDBPyConnection, cluster: str, one: Published) -> Account:
    table = one.table
    rows_in: int | None = 0
    if one.plain is None:
        _create_empty(work, table)
    else:
        rows_in, names = _rows_in(one, one.plain), _check_header(one, one.plain)
        work.execute(f"CREATE TABLE {table.name}_header AS SELECT ?::VARCHAR[] AS names", [names])
        work.execute(_classify(table, _reader(table, one.plain, keep_rejects=True), len(names)))
        _apply_late_rules(work, table)
        _quarantine(work, one, one.plain)
    good = f"CREATE VIEW {table.name} AS SELECT * EXCLUDE (rule) FROM {table.name}_all WHERE rule IS NULL"
    work.execute(good)
    account = _account(work, cluster, one, rows_in)
    if table.required and not account.rows_in:
        raise SourceError(f"{one.file} holds no rows; expected the {table.name} table. Fetch the file again.")
    return account


def _reader(table: RawTable, plain: Path, *, keep_rejects: bool = False) -> str:
    """Return the SQL that reads a file as numbered lines (of JSON: as numbered elements of its array)."""
    path = _escaped(plain)
    if table.json_array:
        rows = f"(SELECT json AS line FROM read_json_objects('{path}', {JSON_OBJECTS}))"
    else:
        kept = f"store_rejects = true, rejects_table = '{table.name}_rejects', rejects_scan = '{table.name}_scan'"
        rejects = f", {kept}" if keep_rejects else ""
        rows = f"read_csv('{path}', skip = {_header_lines(table)}, {LINES}{rejects})"
    return f"(SELECT row_number() OVER () AS row, line FROM {rows})"


def _header_lines(table: RawTable) -> int:
    return 0 if table.header is None else 1


def _rows_in(one: Published, plain: Path) -> int | None:
    """Count a file's rows without DuckDB; of a JSON array only DuckDB can tell (None)."""
    if not one.table.json_array:
        return max(0, count_rows(plain) - _header_lines(one.table))
    # A log cut off between two jobs would read as a shorter one.
    if plain.stat().st_size and not ends_with(plain, b"]"):
        raise SourceError(f"{one.file} is truncated: it does not end its JSON array with ']'. Fetch it again.")
    return None


def _check_header(one: Published, plain: Path) -> list[str]:
    expected = one.table.header
    if expected is None or not plain.stat().st_size:
        return [c.name for c in one.table.columns]
    found = header_of(plain)
    wild = expected.index("*") if "*" in expected else None
    if wild is not None:
        after = len(expected) - wild - 1
        comparable = (*found[:wild], "*", *found[len(found) - after :])
    else:
        comparable = tuple(found)
    if [_plain_name(n) for n in comparable] != [_plain_name(n) for n in expected]:
        message = f"{one.file} has the columns {', '.join(found)[:200]!r}; expected {', '.join(expected)!r}"
        raise SourceError(f"{message}. Is it another table's file?")
    return found


def _classify(table: RawTable, reader: str, names: int) -> str:
    """Return the SQL that parses every row and names the first rule it breaks."""
    texts, values, broken = [], [], []
    for position, column in enumerate(table.columns, start=1):
        texts.append(f"{_text(column, position)} AS t{position}")
        values.append(f'{column.value.replace("{text}", f"t{position}")} AS "{column.name}"')
        broken.append(f"WHEN t{position} IS NOT NULL AND \"{column.name}\" IS NULL THEN 'unparsable_{column.name}'")
    if not table.json_array:
        counts = ", ".join(str(n) for n in table.fields or (names,))
        broken.insert(0, f"WHEN len(f) NOT IN ({counts}) THEN 'column_count'")
    broken += [f"WHEN {rule.bad} THEN '{rule.name}'" for rule in table.rules]
    fields = "" if table.json_array else ", string_split(line, ',') AS f"
    columns = ", ".join(f'"{c.name}"' for c in table.columns)
    return f"""CREATE TABLE {table.name}_all AS
        WITH split AS (SELECT row, line{fields} FROM {reader}),
        texts AS (SELECT *, {", ".join(texts)} FROM split),
        parsed AS (SELECT *, {", ".join(values)} FROM texts)
        SELECT row, {columns}, CASE {" ".join(broken)} END AS rule FROM parsed"""


def _text(column: Column, position: int) -> str:
    text = f"trim({column.text or f'f[{position}]'})"
    missing = ", ".join(f"'{t}'" for t in column.missing)
    return f"CASE WHEN {text} NOT IN ({missing}) THEN {text} END"


def _create_empty(work: duckdb.DuckDBPyConnection, table: RawTable) -> None:
    """Create the table without rows, with the very types that rows would have."""
    nothing = "(SELECT NULL::BIGINT AS row, NULL::VARCHAR AS line WHERE false)"
    work.execute(_classify(table, nothing, len(table.columns)))
    work.execute(f"CREATE TABLE {table.name}_header AS SELECT []::VARCHAR[] AS names")


def _apply_late_rules(work: duckdb.DuckDBPyConnection, table: RawTable) -> None:
    """Mark repeated keys (the first row stays), then rows that fail a rule about other tables."""
    name = table.name
    if table.key:
        key = ", ".join(_quoted(k) for k in table.key)
        nth = f"row_number() OVER (PARTITION BY {key} ORDER BY row)"
        repeated = f"SELECT row FROM {name}_all WHERE rule IS NULL QUALIFY {nth} > 1"
        work.execute(f"UPDATE {name}_all SET rule = 'duplicate_key' WHERE row IN ({repeated})")
    for link in table.links:
        broken = f"SELECT row FROM {name}_all r WHERE rule IS NULL AND ({link.bad})"
        work.execute(f"UPDATE {name}_all SET rule = '{link.name}' WHERE row IN ({broken})")


def _quarantine(work: duckdb.DuckDBPyConnection, one: Published, plain: Path) -> None:
    """Keep every bad row as it stands in the file; rows are read a second time only where some are bad."""
    name = one.table.name
    bad = f"SELECT row, rule FROM {name}_all WHERE rule IS NOT NULL"
    if work.execute(f"SELECT EXISTS ({bad})").fetchone() == (True,):
        work.execute(
            f"""INSERT INTO {QUARANTINE} SELECT ?, ?, bad.rule, bad.row, lines.line
            FROM ({bad}) AS bad JOIN {_reader(one.table, plain)} AS lines USING (row)""",
            [name, one.file],
        )
    if not one.table.json_array:  # bytes that are no text, and lines longer than any published one
        work.execute(
            f"INSERT INTO {QUARANTINE} SELECT DISTINCT ?, ?, 'unreadable_line', line, csv_line FROM {name}_rejects",
            [name, one.file],
        )


def _account(work: duckdb.DuckDBPyConnection, cluster: str, one: Published, rows_in: int | None) -> Account:
    name = one.table.name
    loaded = work.execute(f"SELECT count(*), count(*) FILTER (rule IS NULL) FROM {name}_all").fetchone() or (0, 0)
    rules = f'SELECT rule, count(*) FROM {QUARANTINE} WHERE "table" = ? GROUP BY rule ORDER BY rule'
    return Account(
        cluster=cluster,
        table=name,
        file=one.file,
        feeds=one.table.feeds,
        rows_in=loaded[0] if rows_in is None else rows_in,
        rows_good=loaded[1],
        quarantined=dict(work.execute(rules, [name]).fetchall()),
    ).close()


def _order_of(table: str) -> list[str]:
    if table == QUARANTINE:
        return ["table", "row", "rule", "raw"]
    key = [c for c in TABLES[table].primary_key() if c not in ("trace", "cluster")]
    return ["submit_ts", *key] if table == "jobs" else key


def _plain_name(name: str) -> str:
    return re.sub("[^a-z0-9*]", "", name.lower())


def _quoted(name: str) -> str:
    return f'"{name}"'


def _escaped(path: Path) -> str:
    return str(path).replace("'", "''")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]

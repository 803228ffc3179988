"""Load one cluster as its source declares: load raw rows, quarantine bad rows, write good rows to Parquet.

The source declares rules and SELECTs; `pipelines.lake.raw_rows` builds the SQL that loads rows.
Called by `pipelines.lake.ingest` and `pipelines.lake.checking`, with a temporary DuckDB database.
"""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb

from features.canonical import CANONICAL
from pipelines.errors import SourceError
from pipelines.lake.faults import DUPLICATE, SEPARATOR
from pipelines.lake.manifest import Account
from pipelines.lake.raw_rows import (
    NO_LINES,
    escaped,
    from_lines,
    from_records,
    header_lines,
    load_typed,
    loaded,
    numbered,
    typed_numbers,
)
from pipelines.lake.sources.archive import Published, check_header, count_rows, ends_with
from pipelines.lake.sources.source import RawTable, Source
from pipelines.lake.views import COLUMNS, QUARANTINE

PART_ROWS: Final = 3_000_000
"""Number of rows that an ingest can aggregate and sort within its memory limit; larger tables are written in parts."""

SHOWN: Final = 3
"""Number of row numbers that `broken_by` returns for each rule."""

NUMBERED_BY_PLACE: Final = "(SELECT place, rule, place + 1 AS row FROM ({}))"
"""SQL that numbers rows that were loaded in the file's order."""

UNREADABLE = (
    duckdb.InvalidInputException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    UnicodeDecodeError,  # raised if DuckDB's error message quotes bytes of the file that are not valid text
)


def load(
    work: duckdb.DuckDBPyConnection, source: Source, cluster: str, published: Iterable[Published]
) -> list[Account]:
    """Load every table of a cluster into `work`: good rows become views, bad rows go to the table `quarantine`.

    Raises
    ------
    SourceError
        If a file is not in its published format: wrong header, malformed JSON, or no rows in a required table.
    """
    for macro in source.macros:
        work.execute(macro)
    columns = ", ".join(
        f'"{name}" {kind}' for name, kind in COLUMNS[QUARANTINE].items() if name not in ("trace", "cluster")
    )
    work.execute(f"CREATE TABLE {QUARANTINE} ({columns})")
    accounts = []
    for one in published:
        try:
            accounts.append(_load_table(work, cluster, one))
        except UNREADABLE as error:
            raise SourceError(f"{one.file} is not in its published format: {_first_line(error)}") from error
    return accounts


def parts(work: duckdb.DuckDBPyConnection, source: Source, output: str) -> list[str]:
    """Return SQL conditions that split a canonical table into parts to be written; a small table is one part.

    Parts are ranges of the column in `Source.split_by`; the same rows give the same parts.
    """
    column = source.split_by.get(output)
    if column is None:
        return ["true"]
    feeding = " UNION ALL ".join(f'SELECT "{column}" FROM {t.name}' for t in source.tables if t.feeds == output)
    held = f"SELECT {column}, count(*) FROM ({feeding}) GROUP BY ALL ORDER BY ALL"
    bounds: list[str] = []
    rows = 0
    for value, count in work.execute(held).fetchall():
        if rows and rows + count > PART_ROWS:
            bounds.append("'" + value.replace("'", "''") + "'")
            rows = 0
        rows += count
    if not bounds:
        return ["true"]
    between = [f'"{column}" >= {low} AND "{column}" < {high}' for low, high in pairwise(bounds)]
    return [f'"{column}" < {bounds[0]}', *between, f'"{column}" >= {bounds[-1]}']


def write(
    work: duckdb.DuckDBPyConnection, select: str, part: str, table: str, trace: str, cluster: str, target: Path
) -> int:
    """Write the rows of a canonical table that satisfy `part` to Parquet, sorted; return their number.

    The same rows give the same file: the order is total and does not depend on the number of threads.
    """
    types = COLUMNS[table]
    known = {name for name, *_ in work.execute(f"DESCRIBE {select}").fetchall()}
    constants = {"trace": f"'{trace}'", "cluster": f"'{cluster}'"}
    casts = ", ".join(f'CAST("{name}" AS {types[name]}) AS "{name}"' for name in types if name in known)
    order = ", ".join(f'"{name}"' for name in _order_of(table) if name in known)
    ordered = f"SELECT {casts} FROM ({select}) WHERE {part} ORDER BY {order}"
    # Constant columns are added after the sort.
    columns = ", ".join(
        f'"{name}"' if name in known else f'CAST({constants.get(name, "NULL")} AS {kind}) AS "{name}"'
        for name, kind in types.items()
    )
    copied = f"SELECT {columns} FROM ({ordered})"
    work.execute(f"COPY ({copied}) TO '{escaped(target)}' (FORMAT parquet, COMPRESSION zstd)")
    rows = work.execute(f"SELECT count(*) FROM read_parquet('{escaped(target)}')").fetchone()
    return int(rows[0]) if rows else 0


def remarks(work: duckdb.DuckDBPyConnection, source: Source) -> list[str]:
    """Return the texts of the source's remarks whose conditions hold for the loaded rows."""
    held = ((r.text, work.execute(f"SELECT {r.holds}").fetchone()) for r in source.remarks)
    return [text for text, row in held if row and row[0]]


def _load_table(work: duckdb.DuckDBPyConnection, cluster: str, one: Published) -> Account:
    table = one.table
    rows_in: int | None = 0
    if one.plain is None:
        _create_empty(work, table)
    else:
        names = check_header(one, one.plain)
        work.execute(f"CREATE TABLE {table.name}_header AS SELECT ?::VARCHAR[] AS names", [names])
        rows_in, numbers = _load_rows(work, one, one.plain, len(names))
        _apply_late_rules(work, one, one.plain, len(names), numbers)
        _quarantine(work, one, one.plain, numbers)
    kept = ", ".join(_quoted(name) for name in table.kept)
    work.execute(f"CREATE VIEW {table.name} AS SELECT {kept} FROM {table.name}_all WHERE rule IS NULL")
    account = _account(work, cluster, one, rows_in)
    if table.required and not account.rows_in:
        raise SourceError(f"{one.file} holds no rows; expected the {table.name} table. Fetch the file again.")
    return account


def _load_rows(work: duckdb.DuckDBPyConnection, one: Published, plain: Path, names: int) -> tuple[int | None, str]:
    """Load a file's rows with the fastest reader that accepts it.

    Return the number of rows, and the SQL that gives each loaded row its number in the file.
    """
    table = one.table
    if one.records is not None:
        rows = from_records(table, one.records.quick or one.records.numbered)
        try:
            work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, rows)}")
        except (duckdb.OutOfMemoryException, duckdb.InterruptException):
            raise
        except duckdb.Error as error:
            reason = _first_line(error).replace(str(plain), str(one.file))
            raise SourceError(f"{one.file} cannot be read: {reason}") from error
        return None, NUMBERED_BY_PLACE if one.records.quick else "({})"
    rows_in = None if table.json_array else load_typed(work, table, plain, names)
    if rows_in is not None:
        return rows_in, typed_numbers(table, "({})")
    rows_in = _rows_in(one, plain)
    _load_lines(work, one, plain, names)
    return rows_in, "({})"


def numbered_rows(one: Published, plain: Path) -> str:
    """Return the SQL that reads the number (`row`) and raw text (`line`) of a file's rows."""
    return one.records.numbered if one.records is not None else numbered(one.table, plain)


def _load_lines(work: duckdb.DuckDBPyConnection, one: Published, plain: Path, names: int) -> None:
    """Load a file line by line; quarantine lines that are too long or not valid text at once."""
    table = one.table
    lines = numbered(table, plain, keep_rejects=True)
    work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, from_lines(table, lines, names))}")
    if not table.json_array:
        unreadable = f"SELECT DISTINCT ?, ?, 'unreadable_line', line, csv_line FROM {table.name}_rejects"
        work.execute(f"INSERT INTO {QUARANTINE} {unreadable}", [table.name, one.file])


def _rows_in(one: Published, plain: Path) -> int | None:
    """Count a file's rows without DuckDB; return None for a JSON array, which only DuckDB can count."""
    if not one.table.json_array:
        return max(0, count_rows(plain) - header_lines(one.table))
    # DuckDB would accept a file that is cut between two jobs.
    if plain.stat().st_size and not ends_with(plain, b"]"):
        raise SourceError(f"{one.file} is truncated: it does not end its JSON array with ']'. Fetch it again.")
    return None


def _create_empty(work: duckdb.DuckDBPyConnection, table: RawTable) -> None:
    """Create an empty table with the column types of a loaded one, for an absent file."""
    nothing = from_lines(table, NO_LINES, len(table.columns))
    work.execute(f"CREATE TABLE {table.name}_all AS {loaded(table, nothing)}")
    work.execute(f"CREATE TABLE {table.name}_header AS SELECT []::VARCHAR[] AS names")


def _apply_late_rules(work: duckdb.DuckDBPyConnection, one: Published, plain: Path, names: int, numbers: str) -> None:
    """Mark rows that repeat an earlier row's key, then rows that break rules about other tables, with all of these.

    Rows that already broke a rule are not compared with other rows and tables, because they are not kept.
    """
    table, name = one.table, one.table.name
    doubtful = f"SELECT key_hash FROM {name}_all WHERE rule IS NULL GROUP BY key_hash HAVING count(*) > 1"
    if table.key and work.execute(f"SELECT EXISTS ({doubtful})").fetchone() == (True,):
        rows = f"SELECT rowid AS place, row, rule FROM {name}_all WHERE rule IS NULL AND key_hash IN ({doubtful})"
        work.execute(f"CREATE TEMP TABLE doubtful AS SELECT place, row FROM {numbers.format(rows)}")
        lines = f"(SELECT * FROM {numbered_rows(one, plain)} SEMI JOIN doubtful USING (row))"
        nth = f"row_number() OVER (PARTITION BY {', '.join(_quoted(k) for k in table.key)} ORDER BY row)"
        rows = from_records(table, lines) if one.records is not None else from_lines(table, lines, names)
        repeated = f"SELECT row FROM {rows} QUALIFY {nth} > 1"
        places = f"SELECT place FROM doubtful WHERE row IN ({repeated})"
        work.execute(f"UPDATE {name}_all SET rule = '{DUPLICATE}' WHERE rowid IN ({places})")
        work.execute("DROP TABLE doubtful")
    if table.links:
        broken = " UNION ALL ".join(
            f"""SELECT {nth} AS nth, '{link.name}' AS rule, r.rowid AS place FROM {name}_all r
            WHERE rule IS NULL AND ({link.bad})"""
            for nth, link in enumerate(table.links)
        )
        marks = f"SELECT place, string_agg(rule, '{SEPARATOR}' ORDER BY nth) AS rule FROM ({broken}) GROUP BY place"
        work.execute(f"UPDATE {name}_all SET rule = marks.rule FROM ({marks}) AS marks WHERE {name}_all.rowid = place")


def _quarantine(work: duckdb.DuckDBPyConnection, one: Published, plain: Path, numbers: str) -> None:
    """Copy the raw text of every bad row to the quarantine; the file is read again only if it has bad rows."""
    name = one.table.name
    bad = f"SELECT rowid AS place, row, rule FROM {name}_all WHERE rule IS NOT NULL"
    if work.execute(f"SELECT EXISTS ({bad})").fetchone() == (True,):
        work.execute(
            f"""INSERT INTO {QUARANTINE} SELECT ?, ?, bad.rule, bad.row, lines.line
            FROM {numbers.format(bad)} AS bad JOIN {numbered_rows(one, plain)} AS lines USING (row)""",
            [name, one.file],
        )


def _account(work: duckdb.DuckDBPyConnection, cluster: str, one: Published, rows_in: int | None) -> Account:
    name = one.table.name
    loaded = work.execute(f"SELECT count(*), count(*) FILTER (rule IS NULL) FROM {name}_all").fetchone() or (0, 0)
    rows_bad = work.execute(f'SELECT count(*) FROM {QUARANTINE} WHERE "table" = ?', [name]).fetchone() or (0,)
    return Account(
        cluster=cluster,
        table=name,
        file=one.file,
        feeds=one.table.feeds,
        rows_in=loaded[0] if rows_in is None else rows_in,
        rows_good=loaded[1],
        rows_quarantined=rows_bad[0],
        quarantined={rule: rows for rule, rows, *_ in broken_by(work, name)},
    ).close()


def broken_by(work: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, int, list[int]]]:
    """Return each rule that quarantined rows of a table break: its name, the number of rows, the first row numbers."""
    return work.execute(
        f"""SELECT one, count(*), min(row, {SHOWN}) FROM
        (SELECT row, unnest(string_split(rule, '{SEPARATOR}')) AS one FROM {QUARANTINE} WHERE "table" = ?)
        GROUP BY one ORDER BY one""",
        [table],
    ).fetchall()


def _order_of(table: str) -> list[str]:
    if table == QUARANTINE:
        return ["table", "row", "rule", "raw"]
    key = [c for c in CANONICAL[table].key if c not in ("trace", "cluster")]
    return ["submit_ts", *key] if table == "jobs" else key


def _quoted(name: str) -> str:
    return f'"{name}"'


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]

"""Records from SQLite, PostgreSQL, DuckDB and Parquet tables, each read by one SELECT without write access.

SQLite and PostgreSQL are read by Python drivers, because DuckDB's extensions for them would have to be downloaded.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

import duckdb

from pipelines.errors import QueryRefused, SourceError
from pipelines.lake.connections import opened_sealed
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import (
    MOST_RECORD_CHARACTERS,
    NO_CHARACTER,
    Record,
    names_of,
    records_in,
    require,
    text_of,
)
from pipelines.lake.reading import KEPT_CHARACTERS, TOO_LONG, UNREADABLE, escaped, numbered_by_order
from pipelines.lake.sources.source import Records
from pipelines.lake.sql import refuse_all_but_select

FETCHED: Final = 5_000
LOGS: Final = ("-wal", "-journal")
"""Suffixes of the log files that SQLite keeps next to a database while a process writes to it."""

BUSY_S: Final = 20.0
ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def sqlite_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the rows that the mapping's query returns from an SQLite file."""
    # Without a log file, no process is writing: open the database as immutable, so that SQLite creates no log file.
    living = any(path.with_name(path.name + log).exists() for log in LOGS)
    address = f"file:{quote(str(path))}?mode=ro{'' if living else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MOST_RECORD_CHARACTERS)
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.set_authorizer(_authorised)
            cursor = connection.execute(rows.query or "")
            yield from _records(file, [each[0] for each in cursor.description], _fetched(cursor), wanted)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # raised if a damaged schema contains invalid text
        raise SourceError(
            f"{file} with the mapping's query: {error}; expected an SQLite file and one SELECT"
        ) from error


def postgres_records(address: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the rows that the mapping's query returns from PostgreSQL, in a read-only transaction."""
    try:
        import psycopg
    except ImportError as error:
        raise SourceError("reading PostgreSQL needs psycopg, which is not installed; install taut[postgres]") from error
    try:
        with psycopg.connect(address, connect_timeout=10, application_name="taut ingest") as connection:
            connection.read_only = True
            with connection.cursor(name="taut") as cursor:
                cursor.itersize = FETCHED
                # A named cursor runs only a SELECT, and the mapping check refuses queries with a semicolon.
                cursor.execute((rows.query or "").encode())
                names = [each.name for each in cursor.description or ()]
                yield from _records("the query", names, cursor, wanted)
    except psycopg.Error as error:
        reason = str(error).strip().partition("\n")[0]
        raise SourceError(f"the PostgreSQL database refused: {reason}; expected an address and one SELECT") from error


def _authorised(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


def _fetched(cursor: sqlite3.Cursor) -> Iterator[Sequence[object]]:
    while batch := cursor.fetchmany(FETCHED):
        yield from batch


def _records(
    file: str, names: Sequence[str], found: Iterable[Sequence[object]], wanted: Sequence[str | int]
) -> Iterator[Record]:
    places = [names.index(require(file, str(name), names)) for name in wanted]
    for number, row in enumerate(found, start=1):
        texts, fault = list[str | None](), None
        try:
            texts = [_text(row[place]) for place in places]
        except ValueError:
            fault = UNREADABLE
        if sum(len(text) for text in texts if text) > MOST_RECORD_CHARACTERS:
            fault = TOO_LONG
        raw = ", ".join("" if text is None else text[:200] for text in texts) if fault is None else repr(row)[:2000]
        yield Record(number, raw, texts, fault)


def _text(value: object) -> str | None:
    if isinstance(value, datetime | date):
        return str(value)
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueError("bytes, which are no text")
    text = text_of(value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value))
    if text is not None and NO_CHARACTER in text:
        raise ValueError("bytes that are no text")
    return text


NESTED = ("STRUCT", "MAP", "UNION", "BLOB", "BIT")


def duckdb_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int], target: Path) -> Records:
    """Write the rows that the mapping's query returns from a DuckDB file to a Parquet file, and read that."""
    try:
        with _sealed(path, target, target.parent, database=True) as connection:
            refuse_all_but_select(connection, rows.query or "")
            found = _records_of(connection, f"({rows.query}\n)", file, wanted)
            connection.execute(f"COPY {found.numbered} TO '{escaped(target)}' (FORMAT parquet, COMPRESSION zstd)")
    except QueryRefused as error:
        raise SourceError(f"{file} with the mapping's query: {error}") from error
    except duckdb.Error as error:
        raise _unreadable(path, file, "duckdb", error) from error
    return records_in(target)


def parquet_records(path: Path, file: str, wanted: Sequence[str | int]) -> Records:
    """Return the SQL that reads the wanted columns of a Parquet file."""
    try:
        with _sealed(path, path, None, database=False) as connection:
            rows = f"read_parquet('{escaped(path)}', hive_partitioning = false)"
            return _records_of(connection, rows, file, wanted)
    except duckdb.Error as error:
        raise _unreadable(path, file, "parquet", error) from error


@contextmanager
def _sealed(path: Path, target: Path, scratch: Path | None, *, database: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    with (
        TemporaryDirectory(prefix="records-", dir=scratch) as spill,
        opened_sealed(path, Path(spill), target, database=database) as connection,
    ):
        yield connection


def _unreadable(path: Path, file: str, form: str, error: duckdb.Error) -> SourceError:
    reason = str(error).partition("\n")[0].replace(str(path), file)[:300]
    return SourceError(f"{file} cannot be read as {form}: {reason}")


def _records_of(connection: duckdb.DuckDBPyConnection, rows: str, file: str, wanted: Sequence[str | int]) -> Records:
    """Return the SQL that makes records of the wanted columns of `rows`."""
    described = {str(row[0]): str(row[1]) for row in connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()}
    for name in map(str, wanted):
        kind = described[require(file, name, list(described))]
        if kind.startswith(NESTED) or kind.endswith("]"):
            raise SourceError(f"{file}: the column {name!r} is of type {kind[:60]}; expected a number, text or time")
    quoted = ['"' + str(name).replace('"', '""') + '"' for name in wanted]
    names = names_of(len(quoted))
    texts = ", ".join(f"CAST({name} AS VARCHAR) AS {text}" for name, text in zip(quoted, names, strict=True))
    length = " + ".join(f"coalesce(length({name}), 0)" for name in names)
    shown = ", ".join(f"coalesce({name}, '')" for name in names)
    kept = "".join(f", CASE WHEN {length} <= {MOST_RECORD_CHARACTERS} THEN {name} END AS {name}" for name in names)
    record = f"CASE WHEN {length} > {MOST_RECORD_CHARACTERS} THEN '{TOO_LONG}' END AS fault{kept}"
    read = f"(SELECT {texts or 'true'} FROM {rows})"
    line = f"left(concat_ws(', ', {shown}), {KEPT_CHARACTERS})"
    return Records(
        rows=f"(SELECT {record} FROM {read})",
        numbered=f"(SELECT nth, nth + 1 AS place, {line} AS line, {record} FROM {numbered_by_order(read)})",
    )

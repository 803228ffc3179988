"""Rows of SQLite and PostgreSQL as records: streamed through their own drivers, read-only, one SELECT each.

DuckDB's extensions for both are no part of its package and would have to be downloaded. What DuckDB reads by itself
stands in `duckdb_records.py`. Called by `pipelines.lake.generic.declaration` and `pipelines.lake.generic.opening`.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pipelines.errors import SourceError
from pipelines.lake.generic.csv_records import require
from pipelines.lake.generic.json_records import text_of
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import MOST_RECORD_CHARACTERS, TOO_LONG, UNREADABLE, Record
from pipelines.lake.generic.text_lines import NO_CHARACTER

FETCHED: Final = 5_000
LOGS: Final = ("-wal", "-journal")
"""End the names of the files that SQLite keeps beside a database while it is written."""

BUSY_S: Final = 20.0
ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def sqlite_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the rows of the query over an SQLite file.

    Raises
    ------
    SourceError
        If it is no such file or damaged, or the query cannot be run, does more than read, or lacks a wanted column.
    """
    # A file nobody is writing to is opened as one that cannot change: then nothing is made beside it.
    living = any(path.with_name(path.name + log).exists() for log in LOGS)
    address = f"file:{quote(str(path))}?mode=ro{'' if living else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MOST_RECORD_CHARACTERS)
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.set_authorizer(_authorised)
            cursor = connection.execute(rows.query or "")
            yield from _records(file, [each[0] for each in cursor.description], _fetched(cursor), wanted)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names in a damaged schema may be no text
        raise SourceError(
            f"{file} with the mapping's query: {error}; expected an SQLite file and one SELECT"
        ) from error


def postgres_records(address: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the rows of the query in a PostgreSQL database, read through a cursor in a read-only transaction.

    Raises
    ------
    SourceError
        If psycopg is not installed, the database does not answer, or refuses the query.
    """
    try:
        import psycopg
    except ImportError as error:
        raise SourceError("PostgreSQL is read through psycopg, which is not here; install taut[postgres]") from error
    try:
        with psycopg.connect(address, connect_timeout=10, application_name="taut ingest") as connection:
            connection.read_only = True
            with connection.cursor(name="taut") as cursor:
                cursor.itersize = FETCHED
                # Declaring a cursor takes a SELECT alone, and a mapping's query has no semicolon to end it with.
                cursor.execute((rows.query or "").encode())
                names = [each.name for each in cursor.description or ()]
                yield from _records("the query", names, cursor, wanted)
    except psycopg.Error as error:
        said = str(error).strip().partition("\n")[0]
        raise SourceError(f"the PostgreSQL database refused: {said}; expected an address and one SELECT") from error


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

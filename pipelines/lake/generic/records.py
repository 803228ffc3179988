"""Records: the common form of rows that DuckDB does not read in place; they are written to a Parquet file in batches.

SQLite and PostgreSQL are read by Python drivers, because DuckDB's extensions for them would have to be downloaded.
Every database and Parquet file is read by one SELECT without write access.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import QueryRefused, SourceError
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.lake import opened_sealed
from pipelines.lake.reading import KEPT_CHARACTERS, TOO_LONG, UNREADABLE, escaped
from pipelines.lake.sources.source import Records
from pipelines.lake.sql import refuse_all_but_select

BATCH_RECORDS: Final = 20_000
MOST_RECORDS: Final = 200_000_000
MOST_RECORD_CHARACTERS: Final = 1 << 20
"""Maximum number of characters in a row; a longer row is quarantined without being parsed."""
NO_CHARACTER: Final = "\ufffd"
"""The Unicode replacement character, which decoding gives for bytes that are not valid text."""

FETCHED: Final = 5_000
LOGS: Final = ("-wal", "-journal")
"""Suffixes of the log files that SQLite keeps next to a database while a process writes to it."""
BUSY_S: Final = 20.0
ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
NESTED: Final = ("STRUCT", "MAP", "UNION", "BLOB", "BIT")


class Record(NamedTuple):
    """A row: place (line number in a text file, else row number), raw text, field texts, and the rule it breaks."""

    place: int
    raw: str
    texts: Sequence[str | None]
    fault: str | None = None


def written_records(records: Iterable[Record], columns: int, target: Path, what: str) -> Records:
    """Write records to a Parquet file, and return the SQL that reads it; the texts are the columns w1, w2, ..."""
    names = ("line", "fault", *(f"w{i + 1}" for i in range(columns)))
    schema = pa.schema([("nth", pa.int64()), ("place", pa.int64()), *((name, pa.string()) for name in names)])
    left, rows = iter(records), 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(islice(left, BATCH_RECORDS)):
            writer.write_batch(_batch(batch, rows, columns, schema))
            rows += len(batch)
            if rows > MOST_RECORDS:  # for example from a query that never ends
                raise SourceError(f"{what} gives more than {MOST_RECORDS} rows; expected a table of jobs")
    return records_in(target)


def records_in(target: Path) -> Records:
    """Return the SQL that reads a Parquet file of records."""
    rows = f"read_parquet('{escaped(target)}', hive_partitioning = false)"
    return Records(rows=rows, numbered=rows)


def _batch(records: Sequence[Record], before: int, columns: int, schema: pa.Schema) -> pa.RecordBatch:
    empty: Sequence[str | None] = (None,) * columns
    texts = zip(*(empty if r.fault else r.texts for r in records), strict=True) if columns else ()
    arrays = [
        pa.array(range(before, before + len(records)), pa.int64()),
        pa.array([r.place for r in records], pa.int64()),
        pa.array([r.raw[:KEPT_CHARACTERS] for r in records], pa.string()),
        pa.array([r.fault for r in records], pa.string()),
        *(pa.array(each, pa.string()) for each in texts),
    ]
    return pa.record_batch(arrays, schema=schema)


def require(file: str, name: str, names: Sequence[str]) -> str:
    """Return `name` if the file has a column of that name."""
    if name in names:
        return name
    held = ", ".join(repr(each[:60]) for each in names[:40])
    cure = "Is the delimiter right?" if len(names) == 1 else "Write it as the file does."
    raise SourceError(f"{file} lacks the column {name!r} that the mapping names; it has {held}. {cure}")


def text_of(value: object) -> str | None:
    """Return a value as text; lists and objects become JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isascii():
        text.encode()  # raises on lone surrogates, which JSON can escape
    if "\0" in text:
        raise ValueError("a NUL character")
    return text


def sqlite_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield the rows that the mapping's query returns from an SQLite file."""
    # Without a log file, no process is writing: open the database as immutable, so that SQLite creates no log file.
    living = any(path.with_name(path.name + log).exists() for log in LOGS)
    address = f"file:{quote(str(path))}?mode=ro{'' if living else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MOST_RECORD_CHARACTERS)
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.set_authorizer(lambda action, *_: 0 if action in ALLOWED else sqlite3.SQLITE_DENY)
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


def duckdb_records(
    path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int], scratch: Path
) -> Iterator[Record]:
    """Yield the rows of a Parquet file, or those that the mapping's query returns from a DuckDB file."""
    database = rows.format == "duckdb"
    table = f"({rows.query}\n)" if database else f"read_parquet('{escaped(path)}', hive_partitioning = false)"
    try:
        with (
            TemporaryDirectory(prefix="records-", dir=scratch) as spill,
            opened_sealed(path, Path(spill), database=database) as connection,
        ):
            if database:
                refuse_all_but_select(connection, rows.query or "")
            described = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
            kinds = {str(row[0]): str(row[1]) for row in described}
            for name in map(str, wanted):
                kind = kinds[require(file, name, list(kinds))]
                if kind.startswith(NESTED) or kind.endswith("]"):
                    raise SourceError(
                        f"{file}: the column {name!r} is of type {kind[:60]}; expected a number, text or time"
                    )
            quoted = ['"' + str(name).replace('"', '""') + '"' for name in wanted]
            texts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in quoted)
            cursor = connection.execute(f"SELECT {texts or 'true'} FROM {table}")
            yield from _records(file, list(map(str, wanted)), _fetched(cursor), wanted)
    except QueryRefused as error:
        raise SourceError(f"{file} with the mapping's query: {error}") from error
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0].replace(str(path), file)[:300]
        raise SourceError(f"{file} cannot be read as {rows.format}: {reason}") from error


def _fetched(cursor: Any) -> Iterator[Sequence[object]]:  # Any: a cursor of DB-API
    while batch := cursor.fetchmany(FETCHED):
        yield from batch


def _records(
    file: str, names: Sequence[str], rows: Iterable[Sequence[object]], wanted: Sequence[str | int]
) -> Iterator[Record]:
    places = [names.index(require(file, str(name), names)) for name in wanted]
    for number, row in enumerate(rows, start=1):
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

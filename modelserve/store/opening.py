"""Opening the store: the engine of a URL, and its tables, made by whoever comes first.

No rows are read or written here. Called by `modelserve.store.store`.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from modelserve.errors import StoreError
from modelserve.store.tables import LAYOUT, METADATA, STORE

EXPECTED_URL: Final = "sqlite:///file or postgresql+psycopg://user@host/database"
WAIT_S: Final = 5
"""Longest that a lock of another process, or a connection, is waited for."""
CHECKPOINT_PAGES: Final = 8000
"""Pages that SQLite gathers in its WAL before it waits for the disk: 32 MiB, seconds of answers at full load."""
STATEMENT_LIMIT_S: Final = 30
"""Longest that PostgreSQL may work on one statement."""
WRITES: Final = "taut_writes"
"""The execution option of connections that will write."""
_CREATION_LOCK: Final = 7_461_757
"""The key of the advisory lock under which PostgreSQL's tables are made; any number of our own."""
_WAL_TRIES: Final = 50


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise whatever the database raises as `StoreError`.

    Raises
    ------
    StoreError
        The database did not do what was asked; the message says what that was.
    """
    try:
        yield
    except DBAPIError as error:
        said = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise StoreError(
            f"store: {doing} failed ({said[0][:200]}); see that it is there, and not locked or full"
        ) from (error)
    except SQLAlchemyError as error:
        raise StoreError(f"store: {doing} failed ({str(error)[:200]})") from error


def engine_of(url: str) -> Engine:
    """Return the engine of a URL; nothing is opened yet but the parent folder of a file.

    Raises
    ------
    StoreError
        The URL is none of the two kinds, or the folder cannot be made.
    """
    try:
        made = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"store: found a URL that cannot be read, expected {EXPECTED_URL}") from error
    if made.drivername == "sqlite":
        return _sqlite(made)
    if made.drivername == "postgresql+psycopg":
        return _postgresql(made)
    raise StoreError(f"store: found {made.drivername!r}, expected {EXPECTED_URL}")


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("store: found a store in memory, expected a file that workers share; name sqlite:///file")
    try:
        Path(url.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store: folder of {url.database} cannot be made ({error.strerror})") from error
    engine = create_engine(url, connect_args={"timeout": WAIT_S}, pool_size=4, max_overflow=12, pool_timeout=WAIT_S)
    event.listen(engine, "connect", _tune)
    event.listen(engine, "begin", _begin)
    return engine


def _postgresql(url: URL) -> Engine:
    limits = f"-c lock_timeout={WAIT_S * 1000} -c statement_timeout={STATEMENT_LIMIT_S * 1000}"
    asked = url.query.get("options")
    options = limits if asked is None else f"{limits} {asked if isinstance(asked, str) else ' '.join(asked)}"
    try:
        return create_engine(
            url.difference_update_query(["options"]),
            connect_args={"connect_timeout": WAIT_S, "options": options, "application_name": "taut"},
            pool_size=4,
            max_overflow=12,
            pool_timeout=WAIT_S,
            pool_pre_ping=True,
        )
    except ModuleNotFoundError as error:
        raise StoreError("store: PostgreSQL needs psycopg; install taut[postgres]") from error


def _tune(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
    # Transactions are begun by `_begin` alone: the driver would begin them as readers, and two readers that turn
    # writers lock each other out at once, without waiting.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {WAIT_S * 1000}")
    _into_wal(connection)
    # In WAL mode NORMAL loses nothing when a process dies; only a power cut may take the latest moments.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


def _into_wal(connection: sqlite3.Connection) -> None:
    # Turning a new file to WAL does not wait for the lock of another process that does the same.
    for tries_left in range(_WAL_TRIES, -1, -1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not tries_left or "locked" not in str(error):
                raise
            time.sleep(WAIT_S / _WAL_TRIES)
        else:
            return


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def prepare(engine: Engine) -> None:
    """Make the tables where there are none, and check that those there are ours; safe from several workers at once.

    Raises
    ------
    StoreError
        The database cannot be reached, or is another program's or another version's.
    """
    with translated("opening"), engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION_LOCK})
        found = set(inspect(connection).get_table_names())
        if STORE.name not in found:
            if found:
                some = ", ".join(sorted(found)[:3])
                raise StoreError(
                    f"store: found a database of something else (tables {some[:120]}), expected an empty "
                    "one or taut's; name a database of its own"
                )
            METADATA.create_all(connection, checkfirst=False)
            connection.execute(insert(STORE).values(one=1, layout=LAYOUT, seq=0))
            return
        _check(connection, found)


def _check(connection: Connection, found: set[str]) -> None:
    layouts = connection.execute(select(STORE.c.layout)).scalars().all()
    if list(layouts) != [LAYOUT]:
        raise StoreError(
            f"store: found layout {layouts[:3]}, expected {LAYOUT}; take the taut that made it, or a new store"
        )
    missing = set(METADATA.tables) - found
    if missing:
        raise StoreError(
            f"store: tables {sorted(missing)} are gone, expected all of them; restore it, or use a new one"
        )

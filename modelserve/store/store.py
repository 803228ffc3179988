"""The store: an SQLite or PostgreSQL database, opened by URL, with short transactions; safe for several threads.

Its tables are defined here.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from modelserve.errors import StoreError

LAYOUT: Final = 7
"""Version of the table layout; a store of another layout is refused."""

METADATA: Final = MetaData()

_Counted = BigInteger().with_variant(Integer(), "sqlite")
"""Type of automatically increasing keys: BIGINT, but INTEGER in SQLite, which supports no other type for them."""


def _columns(kind: Any, names: str, *, nullable: bool = True) -> list[Column[Any]]:  # an SQL type, and values of it
    return [Column(name, kind, nullable=nullable) for name in names.split()]


STORE: Final = Table(
    "taut_store",
    METADATA,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
)
"""A table with one row: the layout, and the number (`seq`) of the latest change.

A transaction takes its change numbers while it locks this row. So changes become visible in the order of their numbers,
and a reader that asks for numbers above the last one it saw misses none.
"""

CHANGES: Final = Table(
    "taut_changes",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_columns(Text, "kind trace cluster caller", nullable=False),
    Column("at", Float(53), nullable=False),
    *_columns(Text, "task_type user group mode why"),
    *_columns(Text, "job_id role vc workload gpu_type answer_id outcome digest"),
    Column("instances", Integer),
    *_columns(BigInteger, "submit_us start_us end_us"),
    *_columns(Float(53), "run_s req_cpu_cores req_mem_gib req_gpus alloc_cpu_cores alloc_mem_gib alloc_gpus"),
    *_columns(Float(53), "used_cpu_cores used_gpus mem_max_gib gpu_mem_max_gib"),
    *_columns(Text, "run_time_model usage_model forecasts"),
    *_columns(Float(53), "p50_s p90_s"),
    *_columns(Float(53), "peak_cpu_cores peak_mem_gib peak_gpus peak_gpu_mem_gib"),
    UniqueConstraint("trace", "cluster", "job_id", "role", "caller", "kind", "outcome", name="taut_changes_report"),
    Index("taut_changes_of_kind", "kind", "seq"),
    Index("taut_changes_of_type", "trace", "task_type", "seq"),
    Index("taut_changes_of_run_time_model", "run_time_model", "seq"),
    Index("taut_changes_of_usage_model", "usage_model", "seq"),
)
"""All changes that workers learn from, one row each; `modelserve.store.changes` has the columns of each kind.

A report is one row; its kind is its trust. A reporter has one of a job, and a second only of a kill for memory. An
empty cluster means that none was named.
"""

ANSWERS: Final = Table(
    "taut_answers",
    METADATA,
    Column("n", _Counted, primary_key=True, autoincrement=True),
    Column("answer_id", Text, nullable=False, unique=True),
    Column("at", Float(53), nullable=False),
    *_columns(Text, "kind caller trace models", nullable=False),
    Column("weight", BigInteger, nullable=False),
    *_columns(LargeBinary, "context response", nullable=False),
    # Sizes are summed from this index, since summing them from the table would read the large columns too.
    Index("taut_answers_weight", "n", "weight", "at"),
    sqlite_autoincrement=True,
)
"""The answer log: each answer with its inputs; `weight` is the size of the record in bytes."""

EXPECTED_URL: Final = "sqlite:///file or postgresql+psycopg://user@host/database"
WAIT_S: Final = 5
"""Longest wait in seconds for a lock or a connection."""
CHECKPOINT_PAGES: Final = 8000
"""Pages of SQLite's write-ahead log (WAL) between two checkpoints: 32 MiB, a few seconds of answers at full load.

A checkpoint waits for the disk, so it should be rare.
"""
STATEMENT_LIMIT_S: Final = 30
"""Maximum duration in seconds of one statement in PostgreSQL."""
WRITES: Final = "taut_writes"
"""Name of the SQLAlchemy execution option that marks connections for writing."""
_CREATION_LOCK: Final = 7_461_757
"""Key of the PostgreSQL advisory lock that is held while tables are created or changed; an arbitrary number."""
_WAL_TRIES: Final = 50


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn every database error in the `with` block into `StoreError`."""
    try:
        yield
    except DBAPIError as error:
        lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise StoreError(
            f"store: {doing} failed ({lines[0][:200]}); check that it exists and is not locked or full"
        ) from (error)
    except SQLAlchemyError as error:
        raise StoreError(f"store: {doing} failed ({str(error)[:200]})") from error


def engine_of(url: str, *, create: bool = True) -> Engine:
    """Return the SQLAlchemy engine of a URL, without connecting.

    With `create`, the parent folder of an SQLite file is created; without it, the file must be there.
    """
    try:
        made = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"store: found an invalid URL, expected {EXPECTED_URL}") from error
    if made.drivername == "sqlite":
        return _sqlite(made, create=create)
    if made.drivername == "postgresql+psycopg":
        return _postgresql(made)
    raise StoreError(f"store: found {made.drivername!r}, expected {EXPECTED_URL}")


def _sqlite(url: URL, *, create: bool) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("store: found a store in memory, expected a file that workers share: sqlite:///file")
    if not create and not Path(url.database).is_file():
        cure = "expected the store of the service (--store, --with-feedback, or TAUT_SERVE_STORE)"
        raise StoreError(f"store: found no file {url.database}, {cure}")
    try:
        Path(url.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store: folder of {url.database} cannot be created ({error.strerror})") from error
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
    # With None, `_begin` starts transactions instead of the driver. The driver starts them for reading, and if two
    # of them then write, one fails at once with a lock error.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {WAIT_S * 1000}")
    _into_wal(connection)
    # In WAL mode, NORMAL loses nothing if a process dies; a power failure may lose the latest transactions.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


def _into_wal(connection: sqlite3.Connection) -> None:
    # Retried, since SQLite does not wait here for another process that switches the same file to WAL.
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
    """Create the tables in an empty database, or check those of a store; several workers may do this at once."""
    with translated("opening"), engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION_LOCK})
        names = set(inspect(connection).get_table_names())
        if not names:
            METADATA.create_all(connection, checkfirst=False)
            connection.execute(insert(STORE).values(one=1, layout=LAYOUT, seq=0))
            return
        if STORE.name not in names:
            some = ", ".join(sorted(names)[:3])
            raise StoreError(
                f"store: found a database of another program (tables {some[:120]}), expected an empty one or taut's; "
                "name a database of its own"
            )
        layouts = list(connection.execute(select(STORE.c.layout)).scalars())
        if layouts != [LAYOUT]:
            raise StoreError(
                f"store: found layout {layouts[:3]}, expected {LAYOUT}; use the taut that created it, or a new store"
            )
        if missing := set(METADATA.tables) - names:
            raise StoreError(f"store: tables {sorted(missing)} are missing; restore the store, or use a new one")


@dataclass(slots=True, kw_only=True)
class Store:
    """An open store; `where` is its URL without the password.

    `file` is the file of an SQLite store with its inode when it was opened. `unwritten` is the error of the latest
    write, or None if it succeeded.
    """

    engine: Engine
    where: str
    file: tuple[str, int] | None = None
    unwritten: str | None = None

    @classmethod
    def open(cls, url: str, *, create: bool = True, inode: int | None = None) -> "Store":
        """Open the store at `url`, and create its tables if it is new.

        With `inode`, an SQLite store must be the file of that inode; this process then agrees with those that hold it.
        """
        engine = engine_of(url, create=create and inode is None)
        if inode is not None and engine.url.database and Path(engine.url.database).stat().st_ino != inode:
            raise StoreError(
                "store: found a file that the other workers do not hold; put theirs back, or start the service again"
            )
        try:
            prepare(engine)
        except BaseException:
            engine.dispose()
            raise
        path = engine.url.database if engine.dialect.name == "sqlite" else None
        file = None if path is None else (path, Path(path).stat().st_ino)
        return cls(engine=engine, where=engine.url.render_as_string(hide_password=True), file=file)

    @property
    def lost(self) -> bool:
        """Whether the file of an SQLite store was removed or replaced; later writes to it are lost."""
        try:
            return self.file is not None and Path(self.file[0]).stat().st_ino != self.file[1]
        except OSError:
            return True

    def close(self) -> None:
        """Close all connections to the database."""
        self.engine.dispose()

    def seq(self) -> int:
        """Return the number of the latest change, 0 before the first; a cheap query to detect changes."""
        with self.reading("asking for news") as connection:
            return int(connection.exec_driver_sql(f"SELECT seq FROM {STORE.name}").scalar_one())

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """Yield a connection for reading; `doing` names the operation in error messages."""
        self._check_file(doing)
        with translated(doing), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """Yield a connection for one transaction, committed at the end of the block or rolled back by an error."""
        try:
            self._check_file(doing)
            with (
                translated(doing),
                self.engine.connect().execution_options(**{WRITES: True}) as connection,
                connection.begin(),
            ):
                yield connection
        except StoreError as error:
            self.unwritten = str(error)
            raise
        self.unwritten = None

    def _check_file(self, doing: str) -> None:
        if self.lost:
            raise StoreError(f"store: {doing} failed (its file was removed or replaced); restore it and start again")


def take_numbers(connection: Connection, count: int) -> int:
    """Take the next `count` change numbers and return the first.

    Other writers of changes wait until the transaction of `connection` ends.
    """
    last = connection.execute(update(STORE).values(seq=STORE.c.seq + count).returning(STORE.c.seq)).scalar_one()
    return int(last) - count + 1

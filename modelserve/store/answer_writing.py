"""Write records into the stored answer log, and delete its oldest records to limit their number and total size.

Called by `answer_log`, which has the queue, and by `writer_process`.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, Protocol

from sqlalchemy import Connection, Integer, delete, func, literal_column, select

from modelserve.errors import StoreError
from modelserve.store.answers import FIELDS, AnswerRecord, AnswerRow
from modelserve.store.store import Store
from modelserve.store.tables import ANSWERS

__all__ = ["StoreWriter"]

PRUNE_EVERY: Final = 1000
"""Maximum number of records that a worker writes between two prunings; the log may exceed its limit by as many."""
PRUNE_EVERY_BYTES: Final = 64 * 2**20
"""Maximum bytes that a worker writes between two prunings; the log may exceed its limit by as many."""

_WRITTEN: Final = (*FIELDS, "weight")
_TOGETHER: Final = 25
"""Number of records in one INSERT, which then takes a fraction of a millisecond."""
_PAGE: Final = 256
"""Number of oldest records whose sizes are read by one statement when pruning."""
BLOCK: Final = 1000
"""Number of consecutive record numbers in one block of a `Tally`."""
AGAIN: Final = 4
"""Number of inner blocks that each update of a `Tally` sums again, in rotation, to notice erased records."""


def row_of(record: AnswerRecord) -> AnswerRow:
    """Return a record as a database row."""
    return (
        record.answer_id,
        record.at,
        record.kind,
        record.caller,
        # PostgreSQL texts cannot hold NUL; `context` holds the original name.
        record.trace.replace("\x00", "\ufffd"),
        record.models,
        record.context,
        record.features,
        record.response,
        record.size_bytes,
    )


def write_rows(store: Store, rows: Sequence[AnswerRow], *, between: Callable[[], object] = lambda: None) -> None:
    """Write the records that are not stored yet, in one transaction; `between` is called after each statement.

    Raises
    ------
    StoreError
        No record was written.
    """
    with store.writing("logging answers") as connection:
        # One statement for many rows, since one statement for each row is slower in some drivers.
        for begin in range(0, len(rows), _TOGETHER):
            part = rows[begin : begin + _TOGETHER]
            statement = _insert_by(connection.dialect.paramstyle, len(part))
            connection.exec_driver_sql(statement, tuple(chain.from_iterable(part)))
            between()


@lru_cache(maxsize=2 * _TOGETHER)
def _insert_by(paramstyle: str, rows: int) -> str:
    """Return the INSERT statement for `rows` records, with the driver's placeholders: `?` or `%s`."""
    one = ", ".join(["?" if paramstyle == "qmark" else "%s"] * len(_WRITTEN))
    values = ", ".join([f"({one})"] * rows)
    # A writer process that replaces a dead one sends the records again: skip those that are stored already.
    return f"INSERT INTO {ANSWERS.name} ({', '.join(_WRITTEN)}) VALUES {values} ON CONFLICT (answer_id) DO NOTHING"


def prune_answers(store: Store, kept: int, kept_bytes: int, *, tally: "Tally | None" = None) -> int:
    """Delete the oldest records until at most `kept` records and `kept_bytes` bytes remain; return the number deleted.

    `tally` knows the total size from earlier prunings; without it, the sizes of all records are read from an index.

    Raises
    ------
    StoreError
        Nothing was deleted.
    """
    newest = select(func.max(ANSWERS.c.n)).scalar_subquery()
    with store.writing("pruning answers") as connection:
        gone = connection.execute(delete(ANSWERS).where(ANSWERS.c.n <= newest - kept)).rowcount
        excess = (tally or Tally()).weight_bytes(connection) - kept_bytes
        by_age = select(ANSWERS.c.n, ANSWERS.c.weight).order_by(ANSWERS.c.n).limit(_PAGE)
        while excess > 0 and (oldest := connection.execute(by_age).all()):
            last = oldest[0].n
            for n, weight in oldest:
                excess, last = excess - weight, n
                if excess <= 0:
                    break
            gone += connection.execute(delete(ANSWERS).where(ANSWERS.c.n <= last)).rowcount
    return gone


class Tally:
    """The total size of the log, remembered as one sum for each block of record numbers.

    The log grows at its newest end and is pruned at its oldest, by any number of writers, so an update reads only the
    blocks at both ends and a few others. Erased records of other blocks are counted until their block is read again;
    until then the log may be pruned slightly too early.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._turn = 0

    def weight_bytes(self, connection: Connection) -> int:
        """Return the total size of all records; the first call sums all of them."""
        # Use two statements, so that each reads only one end of the index.
        oldest = connection.execute(select(func.min(ANSWERS.c.n))).scalar_one()
        newest = connection.execute(select(func.max(ANSWERS.c.n))).scalar_one()
        if oldest is None:
            self._blocks.clear()
            return 0
        first, last = oldest // BLOCK, newest // BLOCK
        if not self._blocks or first < min(self._blocks) or last < max(self._blocks):
            self._blocks = _summed(connection, first, last)
            return sum(self._blocks.values())
        # Read the second newest block again too, since another writer may have committed a lower number later.
        begin = max(max(self._blocks) - 1, first)
        turn = self._turn if first < self._turn < begin else first
        self._turn = turn + AGAIN
        known = {n: weight for n, weight in self._blocks.items() if self._turn <= n < begin or first < n < turn}
        self._blocks = known | _summed(connection, first, first)
        self._blocks |= _summed(connection, turn, self._turn - 1) | _summed(connection, begin, last)
        return sum(self._blocks.values())


def _summed(connection: Connection, first: int, last: int) -> dict[int, int]:
    """Return the total size of each non-empty block from `first` to `last`, read from an index."""
    # Use a literal: PostgreSQL treats equal expressions with parameters in SELECT and GROUP BY as different.
    block = (ANSWERS.c.n // literal_column(str(BLOCK), Integer)).label("block")
    asked = select(block, func.sum(ANSWERS.c.weight)).where(
        ANSWERS.c.n >= first * BLOCK, ANSWERS.c.n < (last + 1) * BLOCK
    )
    return {int(number): int(weight) for number, weight in connection.execute(asked.group_by(block))}


class Writer(Protocol):
    """Interface of an object that writes records of the answer log."""

    def start(self) -> None:
        """Get ready to write records."""

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Store records, or raise `StoreError`."""

    def stop(self) -> None:
        """Release the writer's resources."""


class StoreWriter:
    """A writer into an open store, which also prunes the log; `between` is called after each INSERT."""

    def __init__(
        self, store: Store, kept: int, kept_bytes: int, *, between: Callable[[], object] = lambda: None
    ) -> None:
        self._store, self._kept, self._kept_bytes, self._between = store, kept, kept_bytes, between
        self._unpruned = self._unpruned_bytes = 0
        self._tally = Tally()

    def start(self) -> None:
        """Do nothing, since the store is open already."""

    def stop(self) -> None:
        """Do nothing, since the owner of the store closes it."""

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Write records in one transaction, and prune the log if enough have been written since the last time.

        Raises
        ------
        StoreError
            No record was written.
        """
        write_rows(self._store, rows, between=self._between)
        self._unpruned += len(rows)
        self._unpruned_bytes += sum(row[-1] for row in rows)
        few = self._unpruned < min(PRUNE_EVERY, self._kept)
        if few and self._unpruned_bytes < min(PRUNE_EVERY_BYTES, self._kept_bytes):
            return
        self._unpruned = self._unpruned_bytes = 0
        with contextlib.suppress(StoreError):  # the next pruning retries
            prune_answers(self._store, self._kept, self._kept_bytes, tally=self._tally)

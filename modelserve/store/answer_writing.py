"""Write logged answers into the store, and prune the log to the newest by count and by weight.

No queue and no process here: those are `answer_log`'s and `writer_process`'s. Called by both of them.
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
"""Records written between two prunings; each worker's log may exceed its limit by this number."""
PRUNE_EVERY_BYTES: Final = 64 * 2**20
"""Maximum bytes written between two prunings; each worker's log may exceed its limit by this amount."""

_WRITTEN: Final = (*FIELDS, "weight")
_TOGETHER: Final = 25
"""Records in one INSERT, which takes a fraction of a millisecond."""
_PAGE: Final = 256
"""Records looked at in one step of pruning."""
BLOCK: Final = 1000
"""Record numbers in a block."""
AGAIN: Final = 4
"""Blocks of the middle that each update sums again, in turn, to notice erased records."""


def row_of(record: AnswerRecord) -> AnswerRow:
    """Return a record as a database row."""
    return (
        record.answer_id,
        record.at,
        record.kind,
        record.caller,
        # PostgreSQL texts cannot hold NUL; the context keeps the original name.
        record.trace.replace("\x00", "\ufffd"),
        record.models,
        record.context,
        record.features,
        record.response,
        record.size_bytes,
    )


def write_rows(store: Store, rows: Sequence[AnswerRow], *, between: Callable[[], object] = lambda: None) -> None:
    """Write records in one transaction, skipping stored ones; `between` is called after each statement.

    Raises
    ------
    StoreError
        None of them was written.
    """
    with store.writing("logging answers") as connection:
        # One statement for many rows, since row by row is slower in some drivers.
        for begin in range(0, len(rows), _TOGETHER):
            part = rows[begin : begin + _TOGETHER]
            statement = _insert_by(connection.dialect.paramstyle, len(part))
            connection.exec_driver_sql(statement, tuple(chain.from_iterable(part)))
            between()


@lru_cache(maxsize=2 * _TOGETHER)
def _insert_by(paramstyle: str, rows: int) -> str:
    """Return the INSERT of `rows` records with the driver's placeholders: `?` or `%s`."""
    one = ", ".join(["?" if paramstyle == "qmark" else "%s"] * len(_WRITTEN))
    values = ", ".join([f"({one})"] * rows)
    # If the writer dies, a new one retries; the same id is the same answer, so writes are idempotent.
    return f"INSERT INTO {ANSWERS.name} ({', '.join(_WRITTEN)}) VALUES {values} ON CONFLICT (answer_id) DO NOTHING"


def prune_answers(store: Store, kept: int, kept_bytes: int, *, tally: "Tally | None" = None) -> int:
    """Delete all but the newest `kept` records and the newest `kept_bytes` bytes; return the number deleted.

    Only numbers and sizes are read, from an index. With a `tally` from earlier prunings, only those at the ends of the
    log are.

    Raises
    ------
    StoreError
        Not all of them were deleted.
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
    """The total size of the log, kept by block of record numbers, so that pruning need not sum all records.

    The log grows and is pruned at its ends, by any number of writers, so only the blocks there are summed again each
    time. Records erased from the middle are still counted for a while; the log may then be pruned slightly early.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._turn = 0

    def weight_bytes(self, connection: Connection) -> int:
        """Return the total size of all records; the first call sums all of them."""
        # Two statements: each then reads only one end of the key.
        oldest = connection.execute(select(func.min(ANSWERS.c.n))).scalar_one()
        newest = connection.execute(select(func.max(ANSWERS.c.n))).scalar_one()
        if oldest is None:
            self._blocks.clear()
            return 0
        first, last = oldest // BLOCK, newest // BLOCK
        if not self._blocks or first < min(self._blocks) or last < max(self._blocks):
            self._blocks = _summed(connection, first, last)
            return sum(self._blocks.values())
        # Include the second newest block: an earlier number may be written later.
        begin = max(max(self._blocks) - 1, first)
        turn = self._turn if first < self._turn < begin else first
        self._turn = turn + AGAIN
        known = {n: weight for n, weight in self._blocks.items() if self._turn <= n < begin or first < n < turn}
        self._blocks = known | _summed(connection, first, first)
        self._blocks |= _summed(connection, turn, self._turn - 1) | _summed(connection, begin, last)
        return sum(self._blocks.values())


def _summed(connection: Connection, first: int, last: int) -> dict[int, int]:
    """Return the sizes of the non-empty blocks of a span, read from the index alone."""
    # A literal, since PostgreSQL does not match two parameters as the same expression.
    block = (ANSWERS.c.n // literal_column(str(BLOCK), Integer)).label("block")
    asked = select(block, func.sum(ANSWERS.c.weight)).where(
        ANSWERS.c.n >= first * BLOCK, ANSWERS.c.n < (last + 1) * BLOCK
    )
    return {int(number): int(weight) for number, weight in connection.execute(asked.group_by(block))}


class Writer(Protocol):
    """A writer of logged answers."""

    def start(self) -> None:
        """Get ready to write."""

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Store answers, or raise `StoreError`."""

    def stop(self) -> None:
        """Release the writer's resources."""


class StoreWriter:
    """Write into an open store, and prune it from time to time; `between` is called after each statement."""

    def __init__(
        self, store: Store, kept: int, kept_bytes: int, *, between: Callable[[], object] = lambda: None
    ) -> None:
        self._store, self._kept, self._kept_bytes, self._between = store, kept, kept_bytes, between
        self._unpruned = self._unpruned_bytes = 0
        self._tally = Tally()

    def start(self) -> None:
        """Do nothing: the store is open."""

    def stop(self) -> None:
        """Do nothing: the owner closes the store."""

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Write answers in one transaction.

        Raises
        ------
        StoreError
            None of them was written.
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

"""The tally: what the log of answers weighs, block by block of record numbers, so that pruning need not sum it all.

Nothing is written or deleted here. Called by `modelserve.store.answers`, for whoever prunes the log.
"""

from typing import Final

from sqlalchemy import Connection, Integer, func, literal_column, select

from modelserve.store.tables import ANSWERS

BLOCK: Final = 1000
"""Record numbers in a block."""
AGAIN: Final = 4
"""Blocks of the middle that each weighing sums anew, in turn: what was erased there is noticed by and by."""


class Tally:
    """The weights of the blocks as they were last seen.

    The log grows and is pruned at its ends, by any number of writers: only there are blocks summed anew. Records that
    are erased from the middle are counted on for a while, so the tally may say too much, and the log be pruned a little
    early.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._turn = 0

    def weight_bytes(self, connection: Connection) -> int:
        """Return what all records weigh together; the first time, all of them are summed."""
        # One by one: either is then a look at an end of the key.
        oldest = connection.execute(select(func.min(ANSWERS.c.n))).scalar_one()
        newest = connection.execute(select(func.max(ANSWERS.c.n))).scalar_one()
        if oldest is None:
            self._blocks.clear()
            return 0
        first, last = oldest // BLOCK, newest // BLOCK
        if not self._blocks or first < min(self._blocks) or last < max(self._blocks):
            self._blocks = _summed(connection, first, last)
            return sum(self._blocks.values())
        # The newest but one as well: whoever took an earlier number may have written it later.
        begin = max(max(self._blocks) - 1, first)
        turn = self._turn if first < self._turn < begin else first
        self._turn = turn + AGAIN
        known = {n: weight for n, weight in self._blocks.items() if self._turn <= n < begin or first < n < turn}
        self._blocks = known | _summed(connection, first, first)
        self._blocks |= _summed(connection, turn, self._turn - 1) | _summed(connection, begin, last)
        return sum(self._blocks.values())


def _summed(connection: Connection, first: int, last: int) -> dict[int, int]:
    """Return the weights of the blocks of a span that hold any record, read from the index alone."""
    # Written out: PostgreSQL takes no two parameters for the same expression.
    block = (ANSWERS.c.n // literal_column(str(BLOCK), Integer)).label("block")
    asked = select(block, func.sum(ANSWERS.c.weight)).where(
        ANSWERS.c.n >= first * BLOCK, ANSWERS.c.n < (last + 1) * BLOCK
    )
    return {int(number): int(weight) for number, weight in connection.execute(asked.group_by(block))}

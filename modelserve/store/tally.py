"""The tally: what the log of answers weighs, block by block of record numbers, so that pruning need not sum it all.

Nothing is written or deleted here. Called by `modelserve.store.answers`, for whoever prunes the log.
"""

from typing import Final

from sqlalchemy import Connection, Integer, func, literal_column, select

from modelserve.store.tables import ANSWERS

BLOCK: Final = 1000
"""Record numbers in a block."""
ANEW_EVERY: Final = 50
"""Weighings from one summing of everything to the next: what was erased from the middle is noticed by then."""


class Tally:
    """The weights of the blocks as they were last seen.

    The log grows and is pruned at its ends, by any number of writers: only there are blocks summed anew. Records that
    are erased from the middle are counted on for a while, so the tally may say too much, and the log be pruned a little
    early.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._left = 0

    def weight_bytes(self, connection: Connection) -> int:
        """Return what all records weigh together."""
        # One by one: either is then a look at an end of the key.
        oldest = connection.execute(select(func.min(ANSWERS.c.n))).scalar_one()
        newest = connection.execute(select(func.max(ANSWERS.c.n))).scalar_one()
        if oldest is None:
            self._blocks.clear()
            return 0
        first, last = oldest // BLOCK, newest // BLOCK
        if not self._left or not self._blocks or first < min(self._blocks) or last < max(self._blocks):
            self._blocks, self._left = {}, ANEW_EVERY
        self._left -= 1
        # The newest but one as well: whoever took an earlier number may have written it later.
        begin = max(max(self._blocks, default=first) - 1, first)
        self._blocks = {block: weight for block, weight in self._blocks.items() if first < block < begin}
        self._blocks |= _summed(connection, first, first) | _summed(connection, begin, last)
        return sum(self._blocks.values())


def _summed(connection: Connection, first: int, last: int) -> dict[int, int]:
    """Return the weights of the blocks of a span that hold any record, read from the index alone."""
    # Written out: PostgreSQL takes no two parameters for the same expression.
    block = (ANSWERS.c.n // literal_column(str(BLOCK), Integer)).label("block")
    asked = select(block, func.sum(ANSWERS.c.weight)).where(
        ANSWERS.c.n >= first * BLOCK, ANSWERS.c.n < (last + 1) * BLOCK
    )
    return {int(number): int(weight) for number, weight in connection.execute(asked.group_by(block))}

"""Distinct demands of a workload: gangs that ask for the same wait in one bucket, whatever their number.

Which bucket is served is decided in `walk`; the waiting jobs are in `waiting`.
Called by `setup`.
"""

from typing import Final

import numpy as np

from scheduler_core.kernels.kernel import SOURCES, Compiled, kept, kernel
from scheduler_core.kernels.state import NONE
from scheduler_core.types import IntArray

MIX = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)
FEWEST_SLOTS: Final = 1024
"""A table of open addresses is a power of two; most workloads have few distinct demands."""


@kernel
def _hashed(rows: IntArray, row: int) -> np.uint64:
    """Return a number that equal rows share and others rarely do."""
    value = np.uint64(0)
    for column in range(rows.shape[1]):
        value = (value ^ np.uint64(rows[row, column])) * MIX
        value ^= value >> SHIFT
    return value


@kernel
def _equal(rows: IntArray, one: int, other: int) -> bool:
    equal = True
    for column in range(rows.shape[1]):
        equal &= rows[one, column] == rows[other, column]
    return equal


def _numbering(sources: str) -> Compiled:
    @kept
    def numbered(rows: IntArray, table: IntArray, codes: IntArray, first: IntArray) -> int:
        """Write each row's number and each number's first row; NONE where `table` is too small to stay half empty."""
        _ = sources  # part of what the compiled code is kept under
        size, count = len(table), 0
        for row in range(len(rows)):
            slot = np.int64(_hashed(rows, row) & np.uint64(size - 1))
            while table[slot] >= 0 and not _equal(rows, first[table[slot]], row):
                slot = (slot + 1) & (size - 1)
            if table[slot] < 0:
                if 2 * count == size:
                    return NONE
                table[slot] = count
                first[count] = row
                count += 1
            codes[row] = table[slot]
        return count

    return numbered


_numbered = _numbering(SOURCES)


def distinct(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the numbers of a matrix's rows, equal for equal ones, and where the first of each number is.

    >>> [part.tolist() for part in distinct(np.array([[5, 1], [7, 1], [5, 1]]))]
    [[0, 1, 0], [0, 1]]
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    codes, first = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    slots, count = FEWEST_SLOTS, NONE
    while count == NONE:
        count = _numbered(rows, np.full(slots, NONE, dtype=np.int64), codes, first)
        slots *= 8
    return codes, first[:count].copy()

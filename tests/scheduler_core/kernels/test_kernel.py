"""What was compiled is kept under the digest of every file it is made of, and passes named tuples by reference."""

from typing import NamedTuple

import numba
import numpy as np
import pytest

from scheduler_core.kernels import clock, sharing, snapshots
from scheduler_core.kernels.kernel import SOURCES, by_reference, kernel, overwrite
from scheduler_core.types import IntArray


class Inner(NamedTuple):
    sums: IntArray


class Outer(NamedTuple):
    source: IntArray
    copy: IntArray
    factor: int
    inner: Inner


@kernel
def _summed(outer: Outer) -> int:
    overwrite(outer.copy, outer.source)
    for row in range(len(outer.copy)):
        outer.inner.sums[row] += outer.factor * outer.copy[row, 0]
    return outer.factor


def _called(outer: Outer) -> int:
    return int(_summed(by_reference(outer)))


@pytest.mark.parametrize(
    "kept", [clock.advance, clock.aim_at_goal, sharing.fill_in_order, snapshots.enter, snapshots.compare]
)
def test_a_change_in_any_file_compiles_anew(kept):
    # Numba puts what a function closes over into the key of its cache, but none of the functions it calls.
    assert any(str(cell.cell_contents).startswith(SOURCES) for cell in kept.py_func.__closure__)


def test_a_reference_reads_and_writes_as_the_named_tuple_does():
    results = []
    for call in (_called, numba.njit(_nrt=False)(_called)):
        source = np.arange(6).reshape(3, 2)
        outer = Outer(source, np.zeros_like(source), 2, Inner(np.ones(3, dtype=np.int64)))
        results.append((call(outer), outer.copy.tolist(), outer.inner.sums.tolist()))
    assert results == [(2, [[0, 1], [2, 3], [4, 5]], [1, 5, 9])] * 2

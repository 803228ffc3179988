"""What was compiled is kept until a source changes, passes named tuples by reference, and is told once."""

from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from scheduler_core import kernels
from scheduler_core.kernels.clock import advance
from scheduler_core.kernels.kernel import by_reference, compiling_told, kernel, sources
from scheduler_core.types import IntArray


class Inner(NamedTuple):
    sums: IntArray


class Outer(NamedTuple):
    source: IntArray
    factor: int
    inner: Inner


@kernel
def _summed(outer: Outer) -> int:
    for row in range(len(outer.source)):
        outer.inner.sums[row] += outer.factor * outer.source[row, 0]
    return outer.factor


def _called(outer: Outer) -> int:
    return int(_summed(by_reference(outer)))


def test_a_change_in_any_file_compiles_anew(tmp_path):
    (tmp_path / "one.py").write_text("1")
    before = sources(tmp_path)
    sources.cache_clear()
    (tmp_path / "one.py").write_text("2")

    assert sources(tmp_path) != before
    assert advance._compiled._cache._cache_file._source_stamp == sources(*[Path(kernels.__file__).parent] * 2)


def test_a_reference_reads_and_writes_as_the_named_tuple_does():
    results = []
    for call in (_called, numba.njit(_nrt=False)(_called)):
        source = np.arange(6).reshape(3, 2)
        outer = Outer(source, 2, Inner(np.ones(3, dtype=np.int64)))
        results.append((call(outer), outer.inner.sums.tolist()))
    assert results == [(2, [1, 5, 9])] * 2


def test_the_first_compilation_is_told_once() -> None:
    heard: list[str] = []
    double, half = numba.njit(lambda x: 2 * x), numba.njit(lambda x: x / 2)

    with compiling_told(lambda: heard.append("compiling")):
        before = list(heard)
        assert (double(4), half(4)) == (8, 2)

    assert (before, heard) == ([], ["compiling"])


def test_what_is_compiled_already_or_outside_the_block_is_not_told() -> None:
    heard: list[str] = []
    double = numba.njit(lambda x: 2 * x)
    double(4)

    with compiling_told(lambda: heard.append("compiling")):
        double(5)
    double(5.0)

    assert heard == []

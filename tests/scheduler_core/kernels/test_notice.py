"""Word of a compilation: once, when it begins, and never for what was compiled before."""

import numba

from scheduler_core.kernels.notice import compiling_told


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

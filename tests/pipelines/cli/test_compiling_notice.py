"""What a person reads on stderr where code has to be compiled first."""

import numba
import pytest

from pipelines.cli.progress import COMPILING, compiling


def test_one_line_however_much_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    more, less = numba.njit(lambda x: x + 1), numba.njit(lambda x: x - 1)

    with compiling():
        more(1)
        less(1)

    assert capsys.readouterr().err == f"{COMPILING}\n"

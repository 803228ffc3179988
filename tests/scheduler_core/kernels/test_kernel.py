"""What was compiled is kept under the digest of every file it is made of, and the examples run as printed."""

import doctest

import pytest

from pipelines.simulation.engine.compiled import loop
from scheduler_core.kernels import ordered
from scheduler_core.kernels.kernel import SOURCES


@pytest.mark.parametrize("kept", [loop.advance, ordered._filled, ordered._numbered])
def test_a_change_in_any_file_compiles_anew(kept):
    # Numba puts what a function closes over into the key of its cache, but none of the functions it calls.
    assert any(str(cell.cell_contents).startswith(SOURCES) for cell in kept.py_func.__closure__)


@pytest.mark.parametrize("module", [ordered])
def test_examples_run_as_printed(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0

"""What was compiled is kept under the digest of every file it is made of."""

import pytest

from scheduler_core.kernels import clock, sharing
from scheduler_core.kernels.kernel import SOURCES


@pytest.mark.parametrize("kept", [clock.advance, clock.aim_at_goal, clock.choose, sharing.fill_in_order])
def test_a_change_in_any_file_compiles_anew(kept):
    # Numba puts what a function closes over into the key of its cache, but none of the functions it calls.
    assert any(str(cell.cell_contents).startswith(SOURCES) for cell in kept.py_func.__closure__)

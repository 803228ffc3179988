"""The scalar kernels of reservations, which the simulation calls, against the functions on columns."""

import numpy as np
import pytest

from scheduler_core.kernels.reserving import (
    free_under_risk,
    recent_of,
)
from scheduler_core.risk import free_capacity


def test_free_capacity_of_one_machine_is_the_scalar_one() -> None:
    mean, spread = np.array([1.0, 2.0]), np.array([0.5, 0.25])
    columns = free_capacity(np.array([8.0]), np.zeros(2, dtype=np.int64), np.ones(2), mean, spread, 1.5)
    assert columns[0] == pytest.approx(free_under_risk(8.0, mean.sum(), (spread**2).sum(), 1.5))


def test_the_recent_mean_moves_a_third_of_the_way() -> None:
    assert recent_of(0.0, 6.0, 0.0) == 6.0
    assert recent_of(6.0, 9.0, 4.0) == pytest.approx(7.0)

"""Floors and the GPU grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.candidates import device_memory, peak_floors, round_up_gpus
from scheduler_core.types import PeakUse


@pytest.mark.parametrize(
    ("gpus", "grid", "expected"),
    [
        (0.12, 0.05, 0.15),
        (0.15, 0.05, 0.15),
        (0.3, 0.1, 0.3),
        (0.96, 0.05, 1.0),
        (1.0, 0.05, 1.0),
        (1.01, 0.05, 2.0),
        (7.5, 0.05, 8.0),
        (0.5, 1.0, 1.0),
        (0.0, 0.05, 0.0),
    ],
)
def test_gpu_shares_round_up_to_the_grid_and_whole_gpus(gpus: float, grid: float, expected: float) -> None:
    assert round_up_gpus(np.array([gpus]), grid).tolist() == [expected]


@settings(deadline=None)
@given(gpus=st.floats(0.0, 16.0), steps=st.integers(1, 40))
def test_rounding_never_goes_down_and_is_idempotent(gpus: float, steps: int) -> None:
    grid = 1.0 / steps

    rounded = round_up_gpus(np.array([gpus]), grid)

    assert rounded[0] >= gpus - 1e-8
    assert rounded[0] - gpus <= max(grid, 1.0 if gpus > 1.0 - grid else grid) + 1e-8
    assert round_up_gpus(rounded, grid).tolist() == pytest.approx(rounded.tolist(), abs=1e-9)


def test_unknown_devices_take_the_assumed_memory() -> None:
    memory = device_memory(["T4", "MISC", None, "V100M32"], {"T4": 16.0, "V100M32": 32.0}, 12.0)

    assert memory.tolist() == [16.0, 12.0, 12.0, 32.0]


def test_floor_of_gpus_is_the_larger_of_share_and_memory_and_unknown_below_the_runs() -> None:
    two = np.ones(3)
    peak = PeakUse(
        cpu_cores=4 * two,
        mem_gib=10 * two,
        gpus=np.array([0.5, 0.1, 0.5]),
        gpu_mem_gib=np.array([2.0, 8.0, 2.0]),
        runs=np.array([3, 3, 2]),
    )

    floors = peak_floors(peak, 16 * two, cpu_margin=0.5, mem_margin=0.2, gpu_margin=0.0, gpu_mem_margin=0.5, min_runs=3)

    assert floors[0].tolist() == [6.0, 12.0, 0.5]
    assert floors[1].tolist() == [6.0, 12.0, 0.75]
    assert np.isnan(floors[2]).all()

"""Readings to hours: what is merged, filled, counted and refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.energy.grid_files import LONGEST_GAP_H, hourly
from scheduler_core.errors import BadInput

HOUR = 3600.0


def test_an_hour_that_is_missing_is_that_of_the_day_before_else_that_before() -> None:
    hours = np.array([h for h in range(60) if h not in (2, 30, 54)])

    series, repairs = hourly(hours * HOUR, hours.astype(float), "g/kWh")

    assert [series.values[hour] for hour in (2, 30, 54)] == [1.0, 6.0, 6.0]
    assert np.flatnonzero(series.filled).tolist() == [2, 30, 54]
    assert (repairs.filled, repairs.merged, repairs.unsorted) == (3, 0, 0)


@given(st.permutations(range(30)))
def test_the_order_of_readings_changes_nothing_but_its_count(order: list[int]) -> None:
    moments, values = np.arange(30) * HOUR, np.arange(30.0) ** 2

    series, repairs = hourly(moments[order], values[order], "g/kWh")

    assert series.values.tolist() == values.tolist()
    assert (repairs.unsorted == 0) == (list(order) == sorted(order))


@given(
    hours=st.lists(st.integers(0, 100), min_size=2, max_size=60, unique=True),
    cut=st.integers(1, 100),
    seed=st.integers(0, 99),
)
def test_what_is_filled_never_depends_on_what_comes_later(hours: list[int], cut: int, seed: int) -> None:
    moments, values = np.array(sorted(hours)) * HOUR, np.random.default_rng(seed).uniform(0, 500, len(hours))
    kept = moments < moments[0] + cut * HOUR

    whole, _ = hourly(moments, values, "g/kWh")
    early, _ = hourly(moments[kept], values[kept], "g/kWh")

    assert early.values.tolist() == whole.values[: len(early)].tolist()


@pytest.mark.parametrize(
    ("moments", "values", "said"),
    [
        ([], [], "without a value"),
        ([0.0], [np.nan], "without a value"),
        ([0.0, (LONGEST_GAP_H + 2) * HOUR], [1.0, 1.0], "a gap of 169 hours from 1970-01-01T01"),
        ([0.0, 4e9], [1.0, 1.0], "a century"),
    ],
)
def test_what_is_not_hours_is_refused(moments: list[float], values: list[float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        hourly(np.array(moments), np.array(values), "g/kWh")

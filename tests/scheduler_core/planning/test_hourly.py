"""Hourly series: exact integrals, wrapping, and refusals beyond their ends."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S, Grid, HourlySeries
from tests.pipelines.simulation.energy.sites import hourly

values = st.lists(st.floats(-500.0, 900.0), min_size=1, max_size=60)


@given(values=values, ends=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), wrap=st.booleans())
def test_an_integral_is_the_sum_of_its_hours(values: list[float], ends: tuple[float, float], wrap: bool) -> None:
    series = hourly(values, start_s=7200.0, wrap=wrap)
    begin, end = (7200.0 + each * len(values) * HOUR_S for each in sorted(ends))

    edges = np.unique(np.clip(np.append(7200.0 + np.arange(len(values) + 1) * HOUR_S, [begin, end]), begin, end))
    slow = sum(series.at(float((a + b) / 2)) * (b - a) / HOUR_S for a, b in pairwise(edges) if b > a)

    assert series.integral(begin, end) == pytest.approx(slow, abs=1e-6)
    assert series.integral(end, begin) == pytest.approx(-slow, abs=1e-6)


@given(values=values, rounds=st.integers(-3, 3), at=st.floats(0.0, 0.999))
def test_a_series_that_wraps_repeats(values: list[float], rounds: int, at: float) -> None:
    series = hourly(values, wrap=True)
    span = len(values) * HOUR_S

    assert series.at(at * span // 1 + rounds * span) == series.at(at * span // 1)
    assert series.integral(0.0, rounds * span) == pytest.approx(rounds * sum(values), abs=1e-6)


def test_many_moments_are_answered_as_one() -> None:
    series = hourly([1.0, 5.0, -2.0])
    moments = np.array([0.0, 3599.0, 3600.0, 7200.5])

    assert series.at(moments).tolist() == [series.at(float(each)) for each in moments] == [1.0, 1.0, 5.0, -2.0]
    assert series.mean(0.0, 10800.0) == pytest.approx(4.0 / 3.0)
    assert series.mean(3600.0, 3600.0) == 5.0


@pytest.mark.parametrize("moment", [-1.0, 7200.0, float("nan"), float("inf")])
def test_beyond_its_ends_a_series_knows_nothing(moment: float) -> None:
    series = hourly([1.0, 2.0])
    with pytest.raises(BadInput, match="found the moment"):
        series.at(moment)
    with pytest.raises(BadInput, match="found the moment"):
        series.integral(0.0, moment * 2)
    assert series.integral(0.0, 7200.0) == 3.0


def test_going_round_leaves_out_a_day_that_is_not_whole() -> None:
    series = hourly(np.arange(50.0)).going_round()

    assert len(series) == 48
    assert series.at(48 * HOUR_S) == 0.0
    assert len(hourly([1.0, 2.0]).going_round()) == 2


def test_what_is_truncated_is_what_began_before() -> None:
    series = hourly([1.0, 2.0, 3.0])

    assert series.truncated(3601.0).values.tolist() == [1.0, 2.0]
    assert series.truncated(3600.0).values.tolist() == [1.0]
    with pytest.raises(BadInput):
        series.truncated(0.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"values": np.array([])},
        {"values": np.array([1.0, np.nan])},
        {"values": np.array([1.0, np.inf])},
        {"values": np.ones((2, 2))},
        {"values": np.ones(2), "filled": np.zeros(3, dtype=np.bool_)},
        {"values": np.ones(2), "start_s": 1800.0},
        {"values": np.ones(2), "start_s": float("nan")},
    ],
)
def test_what_is_no_series_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="hourly series"):
        HourlySeries(**{"start_s": 0.0, "unit": "g/kWh", **fields})


def test_a_grid_of_other_units_or_pue_is_refused() -> None:
    with pytest.raises(BadInput, match="expected USD/kWh"):
        Grid(zone="DE", price=hourly([1.0]))
    with pytest.raises(BadInput, match=r"PUE of 0\.9"):
        Grid(zone="DE", pue=0.9)

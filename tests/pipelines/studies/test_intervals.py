"""Intervals against figures worked by hand and against published tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.studies.compare import clopper_pearson, mean, ratio

T_9 = 2.262157
"""Student's 0.975 quantile of nine degrees of freedom."""


def test_the_mean_of_ten_seeds_has_students_interval() -> None:
    values = [float(value) for value in range(10)]

    found = mean(values)

    half = T_9 * np.std(values, ddof=1) / math.sqrt(10)
    assert (found.value, found.low, found.high) == pytest.approx((4.5, 4.5 - half, 4.5 + half), rel=1e-6)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    found = mean([3.0])

    assert found.value == 3.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_nothing_is_said_of_what_is_unknown(values: list[float]) -> None:
    assert math.isnan(mean(values).value)
    assert math.isnan(ratio(values, values).value)


def test_a_ratio_is_that_of_the_means() -> None:
    assert ratio([30.0, 10.0], [10.0, 10.0]).value == 2.0
    assert math.isnan(ratio([1.0, 2.0], [0.0, 0.0]).value)


def test_what_arms_have_in_common_under_a_seed_does_not_widen_the_interval() -> None:
    base = np.array([100.0, 300.0, 200.0])
    noise = np.array([1.0, -1.0, 0.0])

    paired = ratio(base * 1.5 + noise, base)
    shuffled = ratio((base * 1.5 + noise)[[1, 2, 0]], base)

    assert paired.value == shuffled.value == pytest.approx(1.5)
    assert paired.high - paired.low < 0.1 * (shuffled.high - shuffled.low)


def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        base = rng.normal(200.0, 20.0, 10)
        found = ratio(base + rng.normal(60.0, 15.0, 10), base)
        held += found.low <= 1.3 <= found.high

    assert 0.92 < held / 400 < 0.98


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"), [(0, 583, 0.0, 0.0063), (3, 20, 0.0321, 0.3789), (7, 7, 0.590, 1.0)]
)
def test_the_exact_interval_of_a_rate_is_that_of_the_tables(hits: int, of: int, low: float, high: float) -> None:
    found = clopper_pearson(hits, of)

    assert found.value == hits / of
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-4)


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_rate_lies_in_its_interval(hits: int, more: int) -> None:
    found = clopper_pearson(hits, hits + more)

    assert 0.0 <= found.low <= found.value <= found.high <= 1.0

"""The table of the Gittins index against its definition, and how it is read."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.kernels.gittins import (
    AGES,
    BROAD_SHARE,
    BROAD_SIGMA,
    SPREADS,
    Z90,
    remaining_of,
    remaining_table,
    spreads_of,
)

TABLE = remaining_table()


def test_an_exact_prediction_leaves_what_remains() -> None:
    assert [remaining_of(TABLE, AGES, 0, 1000.0, at_s) for at_s in (0.0, 250.0, 900.0, 1000.0, 5000.0)] == (
        pytest.approx([1000.0, 750.0, 100.0, 0.0, 0.0], abs=1e-9)
    )


@pytest.mark.parametrize(("spread", "at"), [(1, 0), (4, 0), (4, 33), (10, 20), (16, 50)])
def test_the_table_is_the_reciprocal_of_the_index_by_its_definition(spread: int, at: int) -> None:
    """Integrate the survival function on a fine linear grid for each d, instead of once on a logarithmic one."""
    sigma, age = math.log(SPREADS[spread]) / Z90, float(AGES[at])

    def survival(times: np.ndarray) -> np.ndarray:
        logs = np.log(np.maximum(times, 1e-300))
        parts = [0.5 * np.vectorize(math.erfc)(logs / (s * math.sqrt(2.0))) for s in (sigma, BROAD_SIGMA)]
        return np.asarray((1.0 - BROAD_SHARE) * parts[0] + BROAD_SHARE * parts[1])

    found = []
    for span in np.exp(np.arange(-14.0, 10.0, 0.25)):
        times = age + np.linspace(0.0, 1.0, 400) ** 4 * span
        alive = survival(times)
        if alive[0] - alive[-1] > 1e-9:
            found.append(np.trapezoid(alive, times) / (alive[0] - alive[-1]))

    assert TABLE[spread, at] == pytest.approx(min(found), rel=0.03)


def test_a_wide_prediction_ranks_old_jobs_behind_young_ones() -> None:
    """The broad part of the mixture has a falling hazard: far beyond p50, the remaining time grows with the age."""
    old = AGES >= 8.0

    assert (np.diff(TABLE[1:, old], axis=1) > 0.0).all()
    assert np.isfinite(TABLE).all()
    assert (TABLE >= 0.0).all()


@given(p50_s=st.floats(0.0, 1e9), p90_s=st.one_of(st.just(math.nan), st.floats(0.0, 1e9)), age_s=st.floats(0.0, 1e9))
def test_the_remaining_time_is_a_number_of_at_least_zero(p50_s: float, p90_s: float, age_s: float) -> None:
    [spread] = spreads_of(np.array([p50_s]), np.array([p90_s]))

    assert remaining_of(TABLE, AGES, spread, p50_s, age_s) >= 0.0


def test_an_unknown_p90_counts_as_wide() -> None:
    assert len(set(spreads_of(np.array([100.0, 100.0, math.inf]), np.array([math.nan, 800.0, 5.0])))) == 1

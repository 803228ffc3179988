"""Quantile curves meet their knots; ranks become normal scores with the weights they carry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from pipelines.synth.curves import Curve, normal_ranks

AT = [0.05, 0.5, 0.95]


@given(values=st.lists(st.floats(0.01, 1e9), min_size=3, max_size=3).map(sorted))
def test_a_curve_goes_through_its_quantiles(values: list[float]):
    curve = Curve.of(AT, values)

    assert curve.at(ndtri(np.array(AT))) == pytest.approx(values, rel=1e-9)


@given(values=st.lists(st.floats(0.0, 1e9), min_size=3, max_size=3).map(sorted))
def test_a_curve_never_falls(values: list[float]):
    scores = np.linspace(-5, 5, 201)

    assert (np.diff(Curve.of(AT, values).at(scores)) >= -1e-9 * max(values)).all()


def test_a_curve_that_starts_at_zero_gives_zeros():
    curve = Curve.of([0.25, 0.5, 0.75], [0.0, 0.0, 4.0])

    assert curve.at(np.array([-1.0, -0.3, 0.0])).tolist() == [0.0, 0.0, 0.0]
    assert curve.at(ndtri(np.array([0.75]))) == pytest.approx([4.0])


@pytest.mark.parametrize("values", [[3.0, 2.0, 5.0], [1.0, 2.0]])
def test_quantiles_that_fall_or_miss_are_refused(values: list[float]):
    with pytest.raises(ValueError, match="expected as many, ascending"):
        Curve.of(AT, values)


def test_ranks_are_normal_within_each_stratum():
    rng = np.random.default_rng(5)
    stratum = rng.integers(0, 3, 9000)

    scores = normal_ranks(rng.exponential(size=9000) + stratum, stratum, np.ones(9000))

    for each in range(3):
        assert np.quantile(scores[stratum == each], [0.1, 0.5, 0.9]) == pytest.approx([-1.2816, 0, 1.2816], abs=0.01)


def test_heavy_rows_take_up_more_of_the_margin():
    latent, weight = np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 1.0])

    scores = normal_ranks(latent, np.zeros(3, dtype=np.int64), weight)

    assert scores == pytest.approx(ndtri([0.05, 0.5, 0.95]))

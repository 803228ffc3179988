"""Numbers by address: reproducible, independent of the cut, and distributed as they should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from pipelines.synth.random_numbers import Curve, Noise, normal_ranks


@given(seed=st.integers(0, 2**63), cut=st.integers(1, 99))
def test_a_number_depends_on_its_address_alone(seed: int, cut: int):
    noise, index = Noise(seed=seed), np.arange(100)

    whole = noise.uniform("stream", index)
    parts = np.concatenate([noise.uniform("stream", index[:cut]), noise.uniform("stream", index[cut:])])

    assert np.array_equal(whole, parts)
    assert (whole > 0).all()
    assert (whole < 1).all()


def test_uniform_numbers_are_uniform_and_uncorrelated():
    numbers = Noise(seed=7).uniform("a", np.arange(100_000))

    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert counts.min() > 4_700
    assert counts.max() < 5_300
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.015


def test_choices_follow_their_weights():
    drawn = Noise(seed=3).choice("a", np.arange(100_000), [1.0, 0.0, 3.0])

    assert np.bincount(drawn, minlength=3) / 100_000 == pytest.approx([0.25, 0.0, 0.75], abs=0.01)


@pytest.mark.parametrize("digits", [12, 24, 32, 60])
def test_digests_are_hexadecimal_distinct_and_of_their_length(digits: int):
    ids = Noise(seed=3).digests("id", np.arange(1000), digits).to_pylist()

    assert len(set(ids)) == 1000
    assert {len(i) for i in ids} == {digits}
    assert set("".join(ids)) <= set("0123456789abcdef")


AT = [0.05, 0.5, 0.95]


@given(values=st.lists(st.floats(0.01, 1e9), min_size=3, max_size=3).map(sorted))
def test_a_curve_goes_through_its_quantiles(values: list[float]):
    curve = Curve.of(AT, values)

    assert curve.at(ndtri(np.array(AT))) == pytest.approx(values, rel=1e-9)


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

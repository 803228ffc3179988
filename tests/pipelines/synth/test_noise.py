"""Numbers by address: reproducible, independent of the cut, and distributed as they should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.synth.noise import Noise


@given(seed=st.integers(0, 2**63), cut=st.integers(1, 99))
def test_a_number_depends_on_its_address_alone(seed: int, cut: int):
    noise, index = Noise(seed=seed), np.arange(100)

    whole = noise.uniform("stream", index)
    parts = np.concatenate([noise.uniform("stream", index[:cut]), noise.uniform("stream", index[cut:])])

    assert np.array_equal(whole, parts)
    assert (whole > 0).all()
    assert (whole < 1).all()


@pytest.mark.parametrize(("seed", "stream"), [(1, "b"), (2, "a")])
def test_other_streams_and_seeds_differ(seed: int, stream: str):
    index = np.arange(50)

    assert not np.isclose(Noise(seed=1).uniform("a", index), Noise(seed=seed).uniform(stream, index)).any()


def test_uniform_numbers_are_uniform_and_uncorrelated():
    numbers = Noise(seed=7).uniform("a", np.arange(100_000))

    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert counts.min() > 4_700
    assert counts.max() < 5_300
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.015


def test_normal_numbers_have_the_normal_moments():
    numbers = Noise(seed=7).normal("a", np.arange(100_000))

    assert abs(numbers.mean()) < 0.015
    assert abs(numbers.std() - 1) < 0.015


def test_choices_follow_their_weights():
    drawn = Noise(seed=3).choice("a", np.arange(100_000), [1.0, 0.0, 3.0])

    assert np.bincount(drawn, minlength=3) / 100_000 == pytest.approx([0.25, 0.0, 0.75], abs=0.01)


@pytest.mark.parametrize("digits", [12, 24, 32, 60])
def test_digests_are_hexadecimal_distinct_and_of_their_length(digits: int):
    ids = Noise(seed=3).digests("id", np.arange(1000), digits).to_pylist()

    assert len(set(ids)) == 1000
    assert {len(i) for i in ids} == {digits}
    assert set("".join(ids)) <= set("0123456789abcdef")

"""Conformal offsets: coverage where it is promised, and blindness to the future always."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models import conformal
from pipelines.models.conformal import Adaptation, AdaptiveOffset
from tests.examples import examples

HOUR_US = 3_600_000_000


def stream(n: int, seed: int, drift: float = 0.0) -> dict[str, np.ndarray]:
    """Return jobs whose log run time is Gaussian about a mean that drifts by `drift` over the stream."""
    rng = np.random.default_rng(seed)
    submit_us = np.sort(rng.integers(0, 1000 * HOUR_US, n))
    log_y = 7.0 + drift * np.linspace(0, 1, n) + rng.normal(size=n)
    end_us = submit_us + (np.exp(log_y) * 1e6).astype(np.int64)
    return {"submit_us": submit_us, "end_us": end_us, "log_y": log_y, "log_q": np.full(n, 7.0)}


def test_the_static_offset_is_the_rank_of_the_theorem() -> None:
    # n = 9, tau = 0.9: the ceil(10 * 0.9) = 9th smallest
    assert conformal.static_offset(np.arange(9.0), np.zeros(9), 0.9) == 8.0
    assert conformal.static_offset(np.zeros(0), np.zeros(0), 0.9) == 0.0


def test_static_offsets_cover_fresh_rows_of_the_same_kind() -> None:
    rng = np.random.default_rng(0)
    covered = [
        (rng.normal(size=50) <= conformal.static_offset(rng.normal(size=200), np.zeros(200), 0.9)).mean()
        for _ in range(400)
    ]

    assert 0.895 < np.mean(covered) < 0.915


@pytest.mark.parametrize("drift", [0.0, 3.0, -3.0])
def test_adaptive_offsets_cover_ninety_percent_through_drift(drift: float) -> None:
    jobs = stream(8000, seed=1, drift=drift)

    following = Adaptation(window=1000, gain=0.0002)

    offsets = conformal.adaptive_offsets(**jobs, tau=0.9, adaptation=following).offsets

    covered = jobs["log_y"][500:] <= jobs["log_q"][500:] + offsets[500:]
    static = jobs["log_y"][500:] <= jobs["log_q"][500:] + conformal.static_offset(
        jobs["log_y"][:500], jobs["log_q"][:500], 0.9
    )
    assert 0.87 < covered.mean() < 0.93
    if drift:
        assert not 0.87 < static.mean() < 0.93


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1000), st.integers(5, 195), st.sampled_from([0.5, 0.9]))
def test_truncating_the_future_changes_no_offset(seed: int, kept: int, tau: float) -> None:
    jobs = stream(200, seed)
    quick = Adaptation(window=20, least=3, gain=0.05, shares=(0.0, 0.5, 1.0))
    now = jobs["submit_us"][kept - 1]
    past = {k: v[:kept].copy() for k, v in jobs.items()}
    unknown = past["end_us"] >= now
    past["log_y"][unknown] = np.nan
    past["end_us"][unknown] = np.iinfo(np.int64).max

    full = conformal.adaptive_offsets(**jobs, tau=tau, adaptation=quick).offsets
    cut = conformal.adaptive_offsets(**past, tau=tau, adaptation=quick).offsets

    assert full[:kept].tolist() == cut.tolist()
    assert kept < 60 or tau == 0.5 or np.unique(cut).size > 1


def test_a_job_that_ends_at_the_instant_of_a_submission_does_not_teach_it() -> None:
    at_once = Adaptation(window=5, least=1, gain=0.0)
    one = {"log_y": np.array([5.0, 5.0]), "log_q": np.zeros(2)}

    same = conformal.adaptive_offsets(
        submit_us=np.array([0, 10]), end_us=np.array([10, 99]), **one, tau=0.9, adaptation=at_once
    )
    before = conformal.adaptive_offsets(
        submit_us=np.array([0, 10]), end_us=np.array([9, 99]), **one, tau=0.9, adaptation=at_once
    )

    assert same.offsets.tolist() == [0.0, 0.0]
    assert before.offsets.tolist() == [0.0, 5.0]


def test_misses_raise_the_level_and_hits_lower_it() -> None:
    adaptation = Adaptation(window=100, least=1, gain=0.1)
    missed, hit = (AdaptiveOffset(tau=0.5, adaptation=adaptation) for _ in range(2))
    for value in range(11):
        missed.learn(float(value), whole=-1.0)
        hit.learn(float(value), whole=99.0)

    assert missed.whole() > 5.0 > hit.whole()


def test_an_offset_that_has_not_been_helping_is_not_added() -> None:
    chosen = Adaptation(window=50, least=1, gain=0.0, shares=(0.0, 1.0))
    helped, harmed = (AdaptiveOffset(tau=0.5, adaptation=chosen) for _ in range(2))
    for _ in range(10):
        helped.learn(2.0, whole=2.0)
        harmed.learn(2.0, whole=9.0)

    assert (helped.share(), harmed.share()) == (1.0, 0.0)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 1000))
def test_shuffling_the_rows_changes_no_offset(seed: int) -> None:
    jobs = stream(150, seed)
    order = np.random.default_rng(seed).permutation(150)
    quick = Adaptation(window=20, least=3, gain=0.05, shares=(0.0, 0.5, 1.0))

    straight = conformal.adaptive_offsets(**jobs, tau=0.9, adaptation=quick)
    shuffled = conformal.adaptive_offsets(**{k: v[order] for k, v in jobs.items()}, tau=0.9, adaptation=quick)

    assert straight.offsets[order].tolist() == shuffled.offsets.tolist()
    assert straight.final == shuffled.final


def test_a_hundred_thousand_jobs_are_calibrated_in_seconds() -> None:
    jobs = stream(100_000, seed=3)

    begun = time.process_time()
    conformal.adaptive_offsets(**jobs, tau=0.9)

    assert time.process_time() - begun < 6.0  # 0.5 s alone; the bar leaves room for a loaded machine

"""Censoring weights: worked by hand, and undoing a cut on a known population."""

import numpy as np
import pytest

from pipelines.models import fitted


def test_survival_is_the_product_over_earlier_events() -> None:
    # at risk 5 at t=1 (event), 4 at t=2 (two events), 2 at t=3 (none), 1 at t=4 (event)
    times = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    events = np.array([True, True, True, False, True])

    survival = fitted.survival_before(times, events, np.array([0.5, 1.0, 2.0, 3.0, 4.0, 9.0]))

    assert survival == pytest.approx([1, 1, 4 / 5, 4 / 5 * 2 / 4, 4 / 5 * 2 / 4, 0])


def test_nothing_censored_weighs_nothing() -> None:
    weights = fitted.censoring_weights(np.array([3.0, 1.0, 2.0]), np.zeros(0))

    assert weights.tolist() == [1.0, 1.0, 1.0]


def test_weights_are_bounded() -> None:
    weights = fitted.censoring_weights(np.array([1.0, 100.0]), np.full(1000, 50.0))

    assert weights.max() == fitted.WEIGHT_LIMIT


def test_weights_undo_a_cut_on_a_known_population() -> None:
    rng = np.random.default_rng(4)
    run_s = rng.exponential(1.0, size=40_000)
    until_cut_s = rng.uniform(0.0, 6.0, size=40_000)
    ended = run_s < until_cut_s

    weights = fitted.censoring_weights(run_s[ended], until_cut_s[~ended])

    naive = run_s[ended].mean()
    weighted = np.average(run_s[ended], weights=weights)
    assert naive < 0.85
    assert weighted == pytest.approx(1.0, abs=0.04)

"""The combination of forecasts: its weights and its p90 offset, by hand and after many jobs."""

import math

import numpy as np
import pytest

from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.combination import Combination, forecasts_of
from tests.modelserve.combining import TWO

# The prior weights.


@pytest.mark.parametrize(
    ("members", "rows", "p50", "p90"),
    [
        (TWO, 0, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
        (TWO, 10**6, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
        (("xgboost",), 60, [1.0], [1.0]),
        # 2000 rows: half for the fitted members at p50, 2000 / 8000 at p90.
        (("xgboost", "reference"), 2000, [1 / 2, 1 / 2], [1 / 4, 3 / 4]),
        (COMBINABLE, 2000, [1 / 4, 1 / 4, *[1 / 8] * 4], [1 / 8, 1 / 8, *[3 / 16] * 4]),
        (COMBINABLE, 6000, [3 / 8, 3 / 8, *[1 / 16] * 4], [1 / 4, 1 / 4, *[1 / 8] * 4]),
        (("forest", "newest_jobs", "xgboost"), 0, [0, 1, 0], [0, 1, 0]),
        (("forest",), 0, [1.0], [1.0]),
        (("xgboost", "forest"), 0, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
        (("xgboost", "forest"), 700, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
    ],
)
def test_before_any_job_has_ended_the_weights_are_the_prior(
    members: tuple[str, ...], rows: int, p50: list[float], p90: list[float]
) -> None:
    combination = Combination.new(members, rows=rows)

    assert combination.weights(0.5) == pytest.approx(p50)
    assert combination.weights(0.9) == pytest.approx(p90)
    assert combination.offset == 0.0
    forecasts = np.random.default_rng(0).normal(size=(1, len(members), 1)) + np.array([0.0, 9.0])
    expected = [forecasts[0, :, 0] @ p50, forecasts[0, :, 1] @ p90]
    assert combination.combined(forecasts)[0] == pytest.approx(expected)


# What one job changes, worked by hand.


def test_one_ended_job_moves_the_weights_by_its_losses() -> None:
    # p50: losses 0 and 0.5 * 2 = 1, of the mixture (1 + 3) / 2 = 2 it is 0.5. p90: losses 0.1 * 1 and 0.1 * 3 = 0.3, of
    # the mixture 3 it is 0.2.
    found = Combination.new(TWO, rows=0).learnt(np.array([[1.0, 2.0], [3.0, 4.0]]), 1.0)

    assert found.state == pytest.approx([0, 1, 0.5, 0.1, 0.3, 0.2, 1, 0, 0.2, 0.2])
    behind = math.exp(-0.1 * 1.0 / 0.501), math.exp(-0.1 * (0.3 - 0.1) / 0.201)
    for level, second in zip((0.5, 0.9), behind, strict=True):
        assert found.weights(level) == pytest.approx([1 / (1 + second), second / (1 + second)])
    assert found.offset == 0.0


# What many jobs change.


# The offset of p90.


def test_the_offset_brings_a_p90_that_is_too_low_to_its_coverage() -> None:
    rng = np.random.default_rng(5)
    log_y = rng.normal(5.0, 0.5, 1500)
    low = np.tile([5.0, 5.2], (1500, 2, 1))  # covers 66 %; the true p90 lies 0.44 higher
    combination, covered = Combination.new(TWO, rows=0), []
    for row, y in zip(low, log_y.tolist(), strict=True):
        covered.append(y <= combination.combined(row[None])[0, 1])
        combination = combination.learnt(row, y)

    assert np.mean(log_y <= 5.2) < 0.7
    assert np.mean(covered[200:]) == pytest.approx(0.9, abs=0.04)


# The forecasts of the members.


def test_forecasts_stand_in_the_order_of_the_members_and_ascend() -> None:
    rng = np.random.default_rng(2)
    xgboost, forest, reference = (np.sort(rng.normal(size=(4, 2)), axis=1) for _ in range(3))
    past = np.sort(rng.normal(size=(4, 3, 2)), axis=2)
    known = {"xgboost": xgboost, "forest": forest, "reference_log_s": reference, "history_log_s": past}

    found = forecasts_of(("newest_jobs", "forest", "reference", "same_gpus", "similar_jobs", "xgboost"), **known)
    crossed = forecasts_of(("xgboost", "reference"), **{**known, "xgboost": xgboost[:, ::-1], "forest": None})

    expected = np.stack([past[:, 2], forest, reference, past[:, 1], past[:, 0], xgboost], axis=1)
    assert found.tolist() == expected.tolist()
    assert crossed.tolist() == np.stack([xgboost, reference], axis=1).tolist()

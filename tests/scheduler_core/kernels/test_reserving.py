"""The scalar kernels of reservations, which the simulation calls, against the functions on columns."""

import numpy as np
import pytest

from scheduler_core.kernels.reserving import (
    MEASURED,
    compute_of,
    free_under_risk,
    memory_of,
    reason_of,
    recent_of,
)
from scheduler_core.reserve import Measurements, ReservePolicy, reserve
from scheduler_core.risk import free_capacity

pytestmark = pytest.mark.slow  # called from Python, every kernel is compiled once more


def test_reserve_on_columns_is_reserve_of_each_job() -> None:
    rng, count, policy = np.random.default_rng(1), 200, ReservePolicy()
    limits = policy.limits()
    seen = Measurements(
        age_s=rng.uniform(0.0, 4.0 * policy.probation_s, count),
        silent_s=rng.uniform(0.0, 1.5 * policy.stale_s, count),
        pressed_ago_s=rng.choice([0.0, 2.0 * policy.press_s, np.inf], (count, 2)),
        count=rng.integers(0, 60, count).astype(float),
        mean=rng.uniform(0.0, 8.0, (count, 2)),
        squares=rng.uniform(0.0, 40.0, (count, 2)),
        recent=rng.uniform(0.0, 12.0, (count, 2)),
        memory=rng.uniform(0.0, 8.0, (count, 2)),
        held=rng.random(count) < 0.1,
    )
    requests = rng.uniform(0.0, 12.0, (count, 3))
    found = reserve(requests, seen, policy)
    sized = 0
    for job in range(count):
        reason = reason_of(seen.held[job], seen.age_s[job], seen.count[job], seen.silent_s[job], limits)
        for at in (0, 1):
            asked, asked_memory, largest = requests[job, 2 * at], requests[job, 1 + at], seen.memory[job, at]
            statistics = (seen.mean[job, at], seen.recent[job, at], seen.squares[job, at], seen.count[job])
            mean, spread = asked, 0.0
            memory = memory_of(asked_memory, largest, limits.memory_margin, reason == MEASURED)
            if reason == MEASURED and seen.pressed_ago_s[job, at] >= limits.press_s:
                mean, spread = compute_of(asked, *statistics, limits)
                sized += 1
            assert (found.mean[job, at], found.spread[job, at], found.memory[job, at]) == (mean, spread, memory)
    assert sized > 50


def test_free_capacity_of_one_machine_is_the_scalar_one() -> None:
    mean, spread = np.array([1.0, 2.0]), np.array([0.5, 0.25])
    columns = free_capacity(np.array([8.0]), np.zeros(2, dtype=np.int64), np.ones(2), mean, spread, 1.5)
    assert columns[0] == pytest.approx(free_under_risk(8.0, mean.sum(), (spread**2).sum(), 1.5))


def test_the_recent_mean_moves_a_third_of_the_way() -> None:
    assert recent_of(0.0, 6.0, 0.0) == 6.0
    assert recent_of(6.0, 9.0, 4.0) == pytest.approx(7.0)

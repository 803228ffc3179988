"""Free capacity under a bound on risk: cases worked by hand, and overflows counted in random draws."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.risk import admits, free_capacity
from tests.examples import examples


def test_free_capacity_as_worked_by_hand() -> None:
    # Machine 0: 10 - (3 x 1 + 2) - 2 x sqrt(3 x 0.25 + 0.25); machine 1: empty; machine 2: 4 - 3 - 2 x 1.
    free = free_capacity(
        np.array([10.0, 8.0, 4.0]),
        np.array([0, 2, 0]),
        np.array([3.0, 1.0, 1.0]),
        np.array([1.0, 3.0, 2.0]),
        np.array([0.5, 1.0, 0.5]),
        2.0,
    )
    assert free.tolist() == [3.0, 8.0, -1.0]


def test_an_empty_cluster_is_free() -> None:
    none = np.empty(0)
    assert free_capacity(np.array([2.0]), np.empty(0, dtype=np.int64), none, none, none, 1.6).tolist() == [2.0]


AMOUNTS = st.floats(0.0, 4.0, width=32)
JOBS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), AMOUNTS, AMOUNTS), max_size=8)


@settings(max_examples=examples(60))
@given(jobs=JOBS, mean=AMOUNTS, spread=AMOUNTS, instances=st.integers(1, 3), z=st.sampled_from([0.0, 1.28, 3.0]))
def test_a_newcomer_is_admitted_where_it_would_leave_nothing_negative(
    jobs: list[tuple[int, int, float, float]], mean: float, spread: float, instances: int, z: float
) -> None:
    capacity = np.array([6.0, 9.0, 30.0])

    def free(held: list[tuple[int, int, float, float]]) -> Any:
        machine, count, means, spreads = (
            (np.array(column) for column in zip(*held, strict=True)) if held else [none] * 4
        )
        return free_capacity(capacity, machine.astype(np.int64), count, means, spreads, z)

    none = np.empty(0)
    variance = np.array([sum(n * s * s for m, n, _, s in jobs if m == at) for at in range(3)])

    found = admits(free(jobs), variance, mean, spread, instances, z)

    left = [free([*jobs, (at, instances, mean, spread)])[at] for at in range(3)]
    sure = [abs(amount) > 1e-6 for amount in left]  # on the edge, rounding decides
    assert [f for f, s in zip(found.tolist(), sure, strict=True) if s] == [
        amount > 0.0 for amount, s in zip(left, sure, strict=True) if s
    ]


def test_more_risk_leaves_more_free() -> None:
    columns = (np.array([10.0]), np.array([0, 0]), np.ones(2), np.ones(2), np.ones(2))
    assert [round(float(free_capacity(*columns, z)[0]), 3) for z in (0.0, 1.0, 2.0)] == [8.0, 6.586, 5.172]


DRAWS = 200_000


@pytest.mark.parametrize("z", [0.5, 1.28, 2.33])
def test_as_many_draws_overflow_as_z_promises(z: float) -> None:
    rng = np.random.default_rng(5)
    mean, spread, instances = np.array([2.0, 0.5, 1.2]), np.array([0.7, 0.1, 0.9]), np.array([2, 5, 1])
    free = free_capacity(np.array([20.0]), np.zeros(3, dtype=np.int64), instances, mean, spread, z)[0]
    # A newcomer of constant use takes all that is free.
    use = sum(rng.normal(m, s, (DRAWS, n)).sum(axis=1) for m, s, n in zip(mean, spread, instances, strict=True)) + free

    overflows = float((use > 20.0).mean())

    promised = 1.0 - NormalDist().cdf(z)
    error = math.sqrt(promised * (1.0 - promised) / DRAWS)
    assert overflows == pytest.approx(promised, abs=4.0 * error)


@pytest.mark.parametrize("z", [0.5, 1.28])
def test_a_machine_filled_by_admission_overflows_no_more_often_than_z_promises(z: float) -> None:
    rng, capacity = np.random.default_rng(6), 20.0
    held: list[tuple[float, float]] = []
    for mean, spread in zip(rng.uniform(0.2, 2.0, 60), rng.uniform(0.1, 0.8, 60), strict=True):
        means, spreads = (np.array([one[at] for one in held]) for at in (0, 1))
        places = np.zeros(len(held), dtype=np.int64)
        free = free_capacity(np.array([capacity]), places, np.ones(len(held)), means, spreads, z)
        if admits(free, np.array([(spreads**2).sum()]), mean, spread, 1, z)[0]:
            held.append((mean, spread))
    use = np.sum([rng.normal(mean, spread, DRAWS) for mean, spread in held], axis=0)

    overflows = float((use > capacity).mean())

    promised = 1.0 - NormalDist().cdf(z)
    assert 10 < len(held) < 60
    assert 0.5 * promised < overflows < promised + 4.0 * math.sqrt(promised / DRAWS)


def test_constant_use_fills_a_machine_to_its_capacity() -> None:
    free = free_capacity(np.array([4.0]), np.array([0]), np.ones(1), np.array([3.0]), np.zeros(1), 3.0)
    assert [bool(admits(free, np.zeros(1), mean, 0.0, 1, 3.0)[0]) for mean in (1.0, 1.1)] == [True, False]


GOOD: dict[str, Any] = {
    "capacity": np.array([4.0]),
    "machine": np.array([0]),
    "instances": np.array([1.0]),
    "mean": np.array([1.0]),
    "spread": np.array([0.5]),
    "z": 1.0,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("capacity", np.array([-1.0])),
        ("machine", np.array([1])),
        ("machine", np.array([-1])),
        ("machine", np.array([0, 0])),
        ("instances", np.array([math.nan])),
        ("mean", np.array([math.inf])),
        ("spread", np.array([-0.1])),
        ("spread", np.array([0.1, 0.1])),
        ("z", math.nan),
        ("z", -1.0),
    ],
)
def test_bad_input_is_refused(name: str, value: Any) -> None:
    assert free_capacity(**GOOD).tolist() == [2.5]
    with pytest.raises(BadInput, match="risk"):
        free_capacity(**{**GOOD, name: value})

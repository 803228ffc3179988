"""Reservations against cases worked by hand and the rules in plain Python; free capacity against random draws."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.kernels.reserving import free_under_risk
from scheduler_core.reserve import (
    Reservations,
    ReservePolicy,
    ReserveReason,
    Running,
    admits,
    free_capacity,
    reserve,
)
from tests.examples import examples

POLICY = ReservePolicy(
    probation_s=600.0,
    min_samples=5.0,
    stale_s=300.0,
    press_s=600.0,
    press_z=2.0,
    z=1.5,
    least_spread=0.2,
    memory_margin=1.5,
)
REQUEST = np.array([[6.0, 29.0, 2.0]])


COLUMNS: dict[str, Any] = {
    "age_s": [3600.0],
    "silent_s": [30.0],
    "pressed_ago_s": [[math.inf, math.inf]],
    "count": [59.0],
    "mean": [[1.0, 0.5]],
    "squares": [[58 * 0.09, 58 * 0.04]],
    "recent": [[1.0, 0.5]],
    "memory": [[2.0, 0.5]],
    "held": [False],
}
"""A job an hour old: 1 core, 0.5 GPUs (deviations 0.3 and 0.2), 2 GiB, 0.5 GPUs of memory."""


def reserved(requests: np.ndarray, fields: dict[str, Any], policy: ReservePolicy = POLICY) -> Reservations:
    """Return the reservations of jobs with the columns `COLUMNS`, some of them changed."""
    of = {name: np.array(value) for name, value in (COLUMNS | fields).items()}
    for name in ("mean", "squares", "recent", "memory", "pressed_ago_s"):
        of[name] = of[name].reshape(-1, 2)
    known = Running(
        at_s=of["age_s"] - of["silent_s"],
        pressed_s=of["age_s"][:, None] - of["pressed_ago_s"],
        **{name: of[name] for name in ("count", "mean", "squares", "recent", "memory")},
    )
    return reserve(requests, known, of["age_s"], of["held"], policy)


def row(found: Any) -> tuple[str, list[float], list[float], list[float]]:
    return (
        tuple(ReserveReason)[found.reason[0]].value,
        found.mean[0].tolist(),
        found.spread[0].round(9).tolist(),
        found.memory[0].tolist(),
    )


WHOLE = ([6.0, 2.0], [0.0, 0.0], [29.0, 2.0])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("measured", [1.0, 0.5], [0.3, 0.2], [3.0, 0.75])),
        ({"age_s": [599.0]}, ("probation", *WHOLE)),
        ({"age_s": [600.0]}, ("measured", [1.0, 0.5], [0.3, 0.2], [3.0, 0.75])),
        ({"count": [4.0]}, ("probation", *WHOLE)),
        ({"silent_s": [301.0]}, ("stale", *WHOLE)),
        ({"held": [True]}, ("held", *WHOLE)),
        # Only the resource that pressed gets its request back; a recent mean that has risen is reserved.
        ({"recent": [[1.7, 0.5]]}, ("measured", [1.7, 0.5], [0.34, 0.2], [3.0, 0.75])),
        ({"pressed_ago_s": [[0.0, math.inf]]}, ("pressing", [6.0, 0.5], [0.0, 0.2], [3.0, 0.75])),
        ({"pressed_ago_s": [[math.inf, 599.0]]}, ("pressing", [1.0, 2.0], [0.3, 0.0], [3.0, 0.75])),
        ({"pressed_ago_s": [[600.0, math.inf]]}, ("measured", [1.0, 0.5], [0.3, 0.2], [3.0, 0.75])),
        # Use that rises reserves the recent mean, and use that falls the mean of all samples.
        ({"recent": [[1.5, 0.3]]}, ("measured", [1.5, 0.5], [0.3, 0.2], [3.0, 0.75])),
        # Equal samples: the least spread, a fifth of the mean.
        ({"squares": [[0.0, 0.0]]}, ("measured", [1.0, 0.5], [0.2, 0.1], [3.0, 0.75])),
        # The spread is cut where mean + 1.5 spreads would exceed the request: (6 - 5.7) / 1.5.
        ({"mean": [[5.7, 0.5]]}, ("measured", [5.7, 0.5], [0.2, 0.2], [3.0, 0.75])),
        # Use beyond the request is not reserved; memory in use is.
        ({"mean": [[7.0, 0.5]]}, ("measured", [6.0, 0.5], [0.0, 0.2], [3.0, 0.75])),
        ({"memory": [[20.0, 2.5]]}, ("measured", [1.0, 0.5], [0.3, 0.2], [29.0, 2.5])),
        ({"memory": [[31.0, 0.0]], "age_s": [60.0]}, ("probation", [6.0, 2.0], [0.0, 0.0], [31.0, 2.0])),
    ],
)
def test_hand_worked_reservations(fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = row(reserved(REQUEST, fields))
    assert found[0] == expected[0]
    for got, wanted in zip(found[1:], expected[1:], strict=True):
        assert got == pytest.approx(wanted)


def plainly(request: list[float], one: dict[str, Any], policy: ReservePolicy) -> list[tuple[float, float, float]]:
    """Return mean, spread and memory of both resources by the rules as one reads them."""
    full = one["held"] or one["age_s"] < policy.probation_s or one["count"] < policy.min_samples
    full = full or one["silent_s"] > policy.stale_s
    rows = []
    for at in (0, 1):
        asked, asked_memory = request[2 * at], request[1 + at]
        with_margin = policy.memory_margin * one["memory"][at]
        if full:
            rows.append((asked, 0.0, max(asked_memory, one["memory"][at]) if asked_memory else with_margin))
            continue
        memory = max(min(asked_memory, with_margin), one["memory"][at]) if asked_memory else with_margin
        mean, recent = one["mean"][at], one["recent"][at]
        deviation = math.sqrt(one["squares"][at] / max(one["count"] - 1, 1))
        if one["pressed_ago_s"][at] < policy.press_s:
            rows.append((asked, 0.0, memory))
            continue
        kept = min(max(mean, recent), asked)
        spread = max(deviation, policy.least_spread * kept)
        rows.append((kept, min(spread, (asked - kept) / policy.z) if policy.z else spread, memory))
    return rows


AMOUNT = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 9.0])
PAIR = st.tuples(AMOUNT, AMOUNT).map(list)
JOB = st.fixed_dictionaries(
    {
        "age_s": st.sampled_from([0.0, 300.0, 4000.0]),
        "silent_s": st.sampled_from([0.0, 299.0, 1000.0]),
        "pressed_ago_s": st.tuples(*[st.sampled_from([0.0, 900.0, math.inf])] * 2).map(list),
        "count": st.sampled_from([0.0, 1.0, 10.0, 100.0]),
        "mean": PAIR,
        "squares": PAIR,
        "recent": PAIR,
        "memory": PAIR,
        "held": st.sampled_from([False, False, False, True]),
    }
)
POLICIES = st.builds(
    ReservePolicy,
    probation_s=st.sampled_from([0.0, 300.0]),
    min_samples=st.sampled_from([1.0, 5.0]),
    z=st.sampled_from([0.0, 1.28, 3.0]),
    least_spread=st.sampled_from([0.0, 0.3]),
    memory_margin=st.sampled_from([1.0, 2.0]),
)


@settings(max_examples=examples(60))
@given(jobs=st.lists(st.tuples(st.tuples(AMOUNT, AMOUNT, AMOUNT), JOB), max_size=6), policy=POLICIES)
def test_reservations_follow_the_rules(
    jobs: list[tuple[tuple[float, ...], dict[str, Any]]], policy: ReservePolicy
) -> None:
    requests = np.array([request for request, _ in jobs]).reshape(-1, 3)
    columns = {name: np.array([one[name] for _, one in jobs], dtype=np.float64) for name in COLUMNS}

    found = reserved(requests, columns, policy)

    for at, (request, one) in enumerate(jobs):
        got = np.column_stack([found.mean[at], found.spread[at], found.memory[at]])
        assert got == pytest.approx(np.array(plainly(list(request), one, policy)))
    assert (found.memory >= columns["memory"].reshape(-1, 2)).all(), "below the largest sample"
    assert (found.mean + policy.z * found.spread <= requests[:, [0, 2]] + 1e-9).all(), "beyond the request"


@pytest.mark.parametrize("fields", [{}, {"age_s": [60.0]}, {"silent_s": [301.0]}, {"held": [True]}])
def test_memory_that_was_not_requested_is_reserved_with_its_margin(fields: dict[str, Any]) -> None:
    found = reserved(np.array([[6.0, 0.0, 0.0]]), fields)
    assert found.memory[0].tolist() == [3.0, 0.75]


@pytest.mark.parametrize(
    "fields",
    [{"z": -1.0}, {"z": math.nan}, {"probation_s": math.inf}, {"memory_margin": 0.9}, {"min_samples": 0.0}],
)
def test_bad_policies_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(fields))):
        ReservePolicy(**fields)


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


def test_free_capacity_of_one_machine_is_the_scalar_one() -> None:
    mean, spread = np.array([1.0, 2.0]), np.array([0.5, 0.25])
    columns = free_capacity(np.array([8.0]), np.zeros(2, dtype=np.int64), np.ones(2), mean, spread, 1.5)
    assert columns[0] == pytest.approx(free_under_risk(8.0, mean.sum(), (spread**2).sum(), 1.5))

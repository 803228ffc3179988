"""Reservations of running jobs against cases worked by hand, and against the rules in plain Python."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.reserve import REASONS, Measurements, ReservePolicy, reserve
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


def seen(**fields: Any) -> Measurements:
    """Return statistics of a job an hour old: 1 core, 0.5 GPUs (deviations 0.3 and 0.2), 2 GiB, 0.5 GPUs of memory."""
    usual: dict[str, Any] = {
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
    return Measurements(**{name: np.array(value) for name, value in (usual | fields).items()})


def row(found: Any) -> tuple[str, list[float], list[float], list[float]]:
    return (
        REASONS[found.reason[0]].value,
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
    found = row(reserve(REQUEST, seen(**fields), POLICY))
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
    columns = {name: np.array([one[name] for _, one in jobs]) for name in Measurements.__slots__}
    for name in ("mean", "squares", "recent", "memory", "pressed_ago_s"):
        columns[name] = columns[name].reshape(-1, 2)

    found = reserve(requests, Measurements(**columns), policy)

    for at, (request, one) in enumerate(jobs):
        got = np.column_stack([found.mean[at], found.spread[at], found.memory[at]])
        assert got == pytest.approx(np.array(plainly(list(request), one, policy)))
    assert (found.memory >= columns["memory"]).all(), "below the largest sample"
    assert (found.mean + policy.z * found.spread <= requests[:, [0, 2]] + 1e-9).all(), "beyond the request"


@pytest.mark.parametrize("fields", [{}, {"age_s": [60.0]}, {"silent_s": [301.0]}, {"held": [True]}])
def test_memory_that_was_not_requested_is_reserved_with_its_margin(fields: dict[str, Any]) -> None:
    found = reserve(np.array([[6.0, 0.0, 0.0]]), seen(**fields), POLICY)
    assert found.memory[0].tolist() == [3.0, 0.75]


def test_whole_numbers_and_slices_are_as_good_as_floats() -> None:
    twice = {name: np.repeat(getattr(seen(), name), 2, axis=0) for name in Measurements.__slots__}
    sliced = Measurements(**{name: values[::2] for name, values in twice.items()})
    whole = reserve(REQUEST.astype(int), replace(sliced, age_s=np.array([3600])), POLICY)
    assert row(whole) == row(reserve(REQUEST, seen(), POLICY))


@pytest.mark.parametrize(
    "fields",
    [
        {"age_s": [-1.0]},
        {"silent_s": [math.nan]},
        {"count": [math.inf]},
        {"mean": [[1.0, -0.5]]},
        {"squares": [[math.nan, 0.0]]},
        {"recent": [1.0]},
        {"memory": [[1.0, 1.0, 1.0]]},
        {"pressed_ago_s": [[math.nan, 1.0]]},
        {"held": [False, False]},
        {"age_s": [1.0, 2.0]},
    ],
)
def test_bad_statistics_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(fields))):
        reserve(REQUEST, seen(**fields), POLICY)


@pytest.mark.parametrize("requests", [[[1.0, 2.0]], [[1.0, 2.0, -1.0]], [[1.0, math.nan, 1.0]], [[math.inf, 1.0, 1.0]]])
def test_bad_requests_are_refused(requests: list[list[float]]) -> None:
    with pytest.raises(BadInput, match="requests"):
        reserve(np.array(requests), seen(), POLICY)


@pytest.mark.parametrize(
    "fields",
    [{"z": -1.0}, {"z": math.nan}, {"probation_s": math.inf}, {"memory_margin": 0.9}, {"min_samples": 0.0}],
)
def test_bad_policies_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(fields))):
        ReservePolicy(**fields)

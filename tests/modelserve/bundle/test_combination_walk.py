"""A walk through a trace with a combination: against slow references, and blind to the future."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.card import WIDEST
from modelserve.bundle.combination import DISCOUNT, RATE, STEP, Combination
from tests.examples import examples
from tests.modelserve.combining import MEMBERS, SEEDS, TWO, history

Jobs = dict[str, npt.NDArray]


def events(jobs: Jobs) -> list[int]:
    """Return submissions (the row) and ends (-1 minus the row) in order, by one sort with every key."""
    keys: list[tuple[tuple[float, ...], int]] = []
    for row, (y, of_row) in enumerate(zip(jobs["log_y"].tolist(), jobs["forecasts"], strict=True)):
        keys.append(((jobs["submit_us"][row], 0.0), row))
        if y == y:  # only NaN differs from itself
            keys.append(((jobs["end_us"][row], 1.0, y, *reversed(of_row.ravel().tolist())), -1 - row))
    return [event for _, event in sorted(keys)]


@settings(max_examples=examples(60), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(0, 60))
def test_a_walk_is_learning_one_by_one_in_the_order_of_all_keys_to_the_bit(
    members: tuple[str, ...], seed: int, n: int
) -> None:
    jobs, start = history(n, len(members), seed), Combination.new(members, rows=700)
    expected, combination = np.empty((n, 2)), start
    for event in events(jobs):
        if event >= 0:
            expected[event] = combination.combined(jobs["forecasts"][event : event + 1])[0]
        else:
            combination = combination.learnt(jobs["forecasts"][-1 - event], jobs["log_y"][-1 - event])

    found, walked = start.walked(**jobs)

    assert found.tobytes() == expected.tobytes()
    assert walked.state.tobytes() == combination.state.tobytes()
    assert (walked.members, walked.prior.tolist()) == (start.members, start.prior.tolist())


@settings(max_examples=examples(30), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(2, 60), cut=st.floats(0.0, 1.0))
def test_truncating_the_future_changes_no_forecast(members: tuple[str, ...], seed: int, n: int, cut: float) -> None:
    jobs, start = history(n, len(members), seed), Combination.new(members, rows=700)
    now = int(np.quantile(jobs["submit_us"], cut, method="lower"))
    kept = jobs["submit_us"] <= now
    past = {name: values[kept].copy() for name, values in jobs.items()}
    open_rows = past["end_us"] >= now
    past["end_us"][open_rows], past["log_y"][open_rows] = np.iinfo(np.int64).max, np.nan

    whole, _ = start.walked(**jobs)
    then, state = start.walked(**past)

    assert then.tobytes() == whole[kept].tobytes()
    other = {**jobs, "log_y": np.where(jobs["end_us"] >= now, jobs["log_y"] + 3.0, jobs["log_y"])}
    assert start.walked(**other)[0][kept].tobytes() == whole[kept].tobytes()
    assert math.isfinite(state.offset)


def test_a_job_that_ends_at_the_instant_of_a_submission_is_not_known_to_it() -> None:
    forecasts = np.tile([1.0, 2.0], (3, 2, 1))
    times = {"submit_us": np.array([0, 10, 11]), "end_us": np.array([10, 99, 99])}

    found, _ = Combination.new(TWO, rows=0).walked(**times, forecasts=forecasts, log_y=np.array([9.0, 1.0, 1.0]))

    assert found.tolist() == [[1.0, 2.0], [1.0, 2.0], [1.0, pytest.approx(2.0 + 0.9 * STEP / 2)]]


# A slow reference: everything is computed anew from the list of ended jobs, by the formulas.


def loss(y: float, q: float, level: float) -> float:
    return level * (y - q) if y >= q else (1 - level) * (q - y)


def discounted(losses: list[float]) -> float:
    return sum(each * DISCOUNT**age for age, each in enumerate(reversed(losses)))


def slow_weights(start: Combination, ended: list, place: int) -> list[float]:
    level, prior = (0.5, 0.9)[place], start.prior[place].tolist()
    mixed = [loss(y, sum(p * row[k][place] for k, p in enumerate(prior)), level) for row, y in ended]
    mean = discounted(mixed) / max(discounted([1.0] * len(ended)), 1.0) + 0.001
    shares = [
        p * math.exp(-RATE * discounted([loss(y, row[k][place], level) for row, y in ended]) / mean)
        for k, p in enumerate(prior)
    ]
    return [share / sum(shares) for share in shares]


def slow_mixture(start: Combination, ended: list, row: list, place: int) -> float:
    return sum(weight * row[k][place] for k, weight in enumerate(slow_weights(start, ended, place)))


def slow_offset(start: Combination, ended: list) -> float:
    tracked, raw, widened = 0.0, [], []
    for i, (row, y) in enumerate(ended):
        p90 = slow_mixture(start, ended[:i], row, 1)
        raw.append(loss(y, p90, 0.9))
        widened.append(loss(y, p90 + tracked, 0.9))
        tracked += -0.1 * STEP if y <= p90 + tracked else 0.9 * STEP
        tracked = min(max(tracked, 0.0), WIDEST)
    mean = discounted(raw) / max(discounted([1.0] * len(ended)), 1.0) + 0.001
    return tracked / (1 + math.exp(RATE * (discounted(widened) - discounted(raw)) / mean))


def slow_walk(start: Combination, jobs: Jobs) -> list[list[float]]:
    rows, log_y = jobs["forecasts"].tolist(), jobs["log_y"].tolist()
    answers, ended = [[0.0, 0.0]] * len(rows), []
    for event in events(jobs):
        if event >= 0:
            p50, p90 = (slow_mixture(start, ended, rows[event], place) for place in (0, 1))
            answers[event] = sorted([p50, p90 + slow_offset(start, ended)])
        else:
            ended.append((rows[-1 - event], log_y[-1 - event]))
    return answers


@settings(max_examples=examples(20), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(1, 20), rows=st.sampled_from([1, 700, 40_000, 10**6]))
def test_a_walk_is_that_of_the_formulas(members: tuple[str, ...], seed: int, n: int, rows: int) -> None:
    jobs, start = history(n, len(members), seed), Combination.new(members, rows=rows)

    found, _ = start.walked(**jobs)

    assert found == pytest.approx(np.array(slow_walk(start, jobs)), abs=1e-9)

"""The combination of forecasts: weights and p90 offset by hand, walks against slow references, its state in a card."""

import math

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from features.contract import FeatureContract
from modelserve.bundle.card import COMBINABLE, WIDEST, Card, CombinationState, card_from
from modelserve.bundle.combination import DISCOUNT, RATE, STEP, Combination, forecasts_of
from modelserve.errors import BundleError
from tests.examples import examples
from tests.modelserve.conftest import make_card

FloatArray = npt.NDArray[np.float64]
TWO = ("reference", "similar_jobs")
SEEDS = st.integers(0, 10_000)
MEMBERS = st.sampled_from([("reference",), TWO, ("xgboost", "forest"), ("forest", *TWO), COMBINABLE])


def forecasts_like(log_y: FloatArray, members: int, rng: np.random.Generator, noise: float = 0.7) -> FloatArray:
    """Return forecasts (n, members, 2) around the run times; each member has an error of its own."""
    errors = rng.normal(0.0, noise * np.linspace(0.3, 1.5, members)[:, None], (len(log_y), members, 1))
    widths = rng.uniform(0.0, 1.5, (len(log_y), members, 1))
    return log_y[:, None, None] + errors + np.concatenate([-widths * 0.2, widths], axis=2)


def history(n: int, members: int, seed: int) -> dict[str, npt.NDArray]:
    """Return jobs that overlap, a few of them without a run time.

    Some are submitted together, some end together, and of those some ran equally long, with equal forecasts or others.
    """
    rng = np.random.default_rng(seed)
    submit_us = np.sort(rng.integers(0, 2 * n, n))
    log_y = rng.normal(5.0, 1.2, n)
    forecasts = forecasts_like(log_y, members, rng)
    end_us = submit_us + rng.integers(0, n // 2 + 2, n)
    twins = rng.integers(0, n, (2, n // 3))
    submit_us[twins[0]] = np.minimum(submit_us[twins[0]], submit_us[twins[1]])
    end_us[twins[0]], log_y[twins[0]] = end_us[twins[1]], log_y[twins[1]]
    same = twins[:, rng.random(n // 3) < 0.5]
    forecasts[same[0], : members // 2 + 1] = forecasts[same[1], : members // 2 + 1]
    open_rows = rng.random(n) < 0.15
    log_y[open_rows], end_us[open_rows] = np.nan, np.iinfo(np.int64).max
    return {"submit_us": submit_us, "end_us": end_us, "forecasts": forecasts, "log_y": log_y}


def taught(combination: Combination, forecasts: FloatArray, log_y: FloatArray) -> Combination:
    """Return the combination after one ended job after the other."""
    for row, y in zip(forecasts, log_y.tolist(), strict=True):
        combination = combination.learnt(row, y)
    return combination


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


def test_one_ended_job_moves_the_weights_by_its_losses() -> None:
    # p50: losses 0 and 0.5 * 2 = 1, of the mixture (1 + 3) / 2 = 2 it is 0.5. p90: losses 0.1 * 1 and 0.1 * 3 = 0.3, of
    # the mixture 3 it is 0.2.
    found = Combination.new(TWO, rows=0).learnt(np.array([[1.0, 2.0], [3.0, 4.0]]), 1.0)

    assert found.state == pytest.approx([0, 1, 0.5, 0.1, 0.3, 0.2, 1, 0, 0.2, 0.2])
    behind = math.exp(-0.1 * 1.0 / 0.501), math.exp(-0.1 * (0.3 - 0.1) / 0.201)
    for level, second in zip((0.5, 0.9), behind, strict=True):
        assert found.weights(level) == pytest.approx([1 / (1 + second), second / (1 + second)])
    assert found.offset == 0.0


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


@settings(max_examples=examples(30), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(0, 40), rows=st.integers(1, 100_000))
def test_a_card_keeps_the_combination_to_the_bit(members: tuple[str, ...], seed: int, n: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    log_y = rng.normal(5.0, 1.0, n)
    combination = taught(Combination.new(members, rows=rows), forecasts_like(log_y, len(members), rng), log_y)

    stored = CombinationState.model_validate_json(combination.stored().model_dump_json())
    read = Combination.of(stored, rows=rows)

    assert stored == combination.stored()
    assert read.members == combination.members
    assert read.state.tobytes() == combination.state.tobytes()
    assert read.prior.tobytes() == combination.prior.tobytes()
    asked = forecasts_like(np.array([4.0]), len(members), rng)
    assert read.combined(asked).tobytes() == combination.combined(asked).tobytes()
    assert read.learnt(asked[0], 4.0).state.tobytes() == combination.learnt(asked[0], 4.0).state.tobytes()


GOOD: dict[str, object] = {"members": list(TWO), "state": [0.5] * 10}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"members": ["reference", "oracle"]}, "expected some of xgboost, forest"),
        ({"members": ["reference", "reference"]}, "expected some of xgboost, forest"),
        ({"members": ["reference", ""]}, "at least 1 character"),
        ({"members": [], "state": [0.0] * 6}, "at least 1 item"),
        ({"members": ["reference"]}, "a state of 10 numbers, expected 8"),
        ({"state": [0.5] * 9}, "a state of 9 numbers, expected 10"),
        ({"state": [0.5] * 11}, "a state of 11 numbers, expected 10"),
        ({"state": []}, "a state of 0 numbers, expected 10"),
        ({"state": [0.5] * 9 + [-1e-9]}, "none below 0"),
        ({"state": [0.5] * 7 + [math.nextafter(WIDEST, 2.0), 0.5, 0.5]}, "p90 offset .* of at most 1"),
        ({"state": [0.5] * 7 + [-1e-9, 0.5, 0.5]}, "none below 0"),
        ({"state": [math.nan] * 10}, "expected 10 finite ones"),
        ({"state": [0.5] * 7 + [math.nan, 0.5, 0.5]}, "expected 10 finite ones"),
        ({"state": [0.5] * 9 + [math.inf]}, "expected 10 finite ones"),
        ({"state": [0.5] * 9 + ["many"]}, "valid number"),
        ({"weights": [0.5, 0.5]}, "Extra inputs"),
    ],
)
def test_a_state_that_is_not_one_is_refused(change: dict[str, object], said: str) -> None:
    assert CombinationState.model_validate(GOOD).members == TWO

    with pytest.raises(ValidationError, match=said) as refused:
        CombinationState.model_validate({**GOOD, **change})
    assert refused.value.error_count() == 1


def test_a_member_without_prior_weight_gets_none_however_well_it_forecasts() -> None:
    state = [0.0, 1e300, 0.5, *[0.5] * 7]  # the forest has lost nothing at p50, the newest jobs very much

    stored = CombinationState(members=("forest", "newest_jobs"), state=tuple(state))

    assert Combination.of(stored, rows=0).weights(0.5).tolist() == [0.0, 1.0]


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), members=MEMBERS, rows=st.sampled_from([0, 1, 10**9]))
def test_weights_of_any_state_that_is_read_are_finite_and_sum_to_one(
    data: st.DataObject, members: tuple[str, ...], rows: int
) -> None:
    number = st.one_of(st.just(0.0), st.floats(0.0, 1e300))
    state = data.draw(st.lists(number, min_size=2 * len(members) + 6, max_size=2 * len(members) + 6))
    state[-3] = min(state[-3], WIDEST)

    combination = Combination.of(CombinationState(members=members, state=tuple(state)), rows=rows)

    for level in (0.5, 0.9):
        assert (combination.weights(level) >= 0.0).all()
        assert combination.weights(level).sum() == pytest.approx(1.0, abs=1e-9)
    assert 0.0 <= combination.offset <= WIDEST


def test_a_card_holds_a_combination_and_tells_whether_it_has_a_forest() -> None:
    contract = FeatureContract.fit(pl.DataFrame({"req_gpus": [1.0, 2.0]}))
    values = make_card("runtime", contract).model_dump(mode="json")

    def card(*members: str) -> Card:
        return card_from({**values, "combination": Combination.new(members, rows=300).stored().model_dump()})

    assert (card("forest", "reference").has_forest, card(*TWO).has_forest) == (True, False)
    assert Card.model_validate_json(card(*TWO).to_json()).combination == Combination.new(TWO, rows=300).stored()
    assert not card_from({**values, "combination": None}).has_forest
    with pytest.raises(BundleError, match=r"combination\.members\.0: .*at least 1 character"):
        card_from({**values, "combination": {**GOOD, "members": ["", "reference"]}})
    with pytest.raises(BundleError, match=r"combination: .*a state of 10 numbers, expected 8"):
        card_from({**values, "combination": {**GOOD, "members": ["reference"]}})

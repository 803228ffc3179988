"""The combination of forecasts: by hand, against a slow reference in plain Python, and blind to the future."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import COMBINABLE, Card, CombinationState, card_from
from modelserve.bundle.combination import DISCOUNT, RATE, STEP, WIDEST, Combination, forecasts_of
from modelserve.errors import BundleError
from tests.examples import examples

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
    """Return jobs that overlap, with equal submission and end times among them, and a few without a run time."""
    rng = np.random.default_rng(seed)
    submit_us = np.sort(rng.integers(0, 2 * n, n))
    log_y = rng.normal(5.0, 1.2, n)
    forecasts = forecasts_like(log_y, members, rng)
    end_us = submit_us + rng.integers(0, n // 2 + 2, n)
    open_rows = rng.random(n) < 0.15
    log_y[open_rows], end_us[open_rows] = np.nan, np.iinfo(np.int64).max
    return {"submit_us": submit_us, "end_us": end_us, "forecasts": forecasts, "log_y": log_y}


def taught(combination: Combination, forecasts: FloatArray, log_y: FloatArray) -> Combination:
    for row, y in zip(forecasts, log_y.tolist(), strict=True):
        combination = combination.learnt(row, y)
    return combination


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


def test_a_job_above_p90_raises_the_offset_and_one_below_lowers_it() -> None:
    # The p90 of the mixture is 3. A job of 5 lies 2 above: loss 0.9 * 2. The tracked offset becomes 0.9 steps, and half
    # of it counts, since p90 with and without it have lost equally so far.
    above = Combination.new(TWO, rows=0).learnt(np.array([[1.0, 2.0], [3.0, 4.0]]), 5.0)

    assert above.state[-4:] == pytest.approx([1, 0.9 * STEP, 1.8, 1.8])
    assert above.offset == pytest.approx(0.9 * STEP / 2)

    # A job of 0 next: the tracked offset falls by 0.1 steps, and p90 without it lost less.
    p90 = above.weights(0.9) @ [2.0, 4.0]
    below = above.learnt(np.array([[1.0, 2.0], [3.0, 4.0]]), 0.0)

    raw, widened = 1.8 * DISCOUNT + 0.1 * p90, 1.8 * DISCOUNT + 0.1 * (p90 + 0.09)
    assert below.state[-4:] == pytest.approx([1 + DISCOUNT, 0.08, raw, widened])
    mean = raw / (1 + DISCOUNT) + 0.001
    assert below.offset == pytest.approx(0.08 / (1 + math.exp(RATE * (widened - raw) / mean)))
    assert 0 < below.offset < above.offset


def test_learning_leaves_the_combination_before_it_as_it_was() -> None:
    before = Combination.new(TWO, rows=0)

    before.learnt(np.array([[1.0, 2.0], [3.0, 4.0]]), 1.0)

    assert not before.state.any()


# What many jobs change.


@settings(max_examples=examples(40), deadline=None)
@given(members=MEMBERS, seed=SEEDS, rows=st.sampled_from([60, 2000, 10**6]))
def test_weights_are_shares(members: tuple[str, ...], seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    log_y = rng.normal(5.0, 2.0, 30)

    combination = taught(Combination.new(members, rows=rows), forecasts_like(log_y, len(members), rng), log_y)

    for level in (0.5, 0.9):
        assert combination.weights(level).sum() == pytest.approx(1.0, abs=1e-12)
        assert (combination.weights(level) > 0).all()


@pytest.mark.parametrize("best", range(len(COMBINABLE)))
def test_a_member_that_is_always_exact_wins_the_weight(best: int) -> None:
    rng = np.random.default_rng(best)
    log_y = rng.normal(5.0, 1.0, 250)
    forecasts = forecasts_like(log_y, len(COMBINABLE), rng)
    forecasts[:, best] = log_y[:, None]

    combination = taught(Combination.new(COMBINABLE, rows=500), forecasts, log_y)

    for level in (0.5, 0.9):
        assert combination.weights(level)[best] > 0.9
    asked = forecasts_like(np.array([8.0]), len(COMBINABLE), rng)
    asked[:, best] = 8.0
    assert combination.combined(asked)[0] == pytest.approx([8.0, 8.0], abs=0.15)


def test_the_better_member_of_one_quantile_may_be_the_worse_of_the_other() -> None:
    log_y = np.random.default_rng(0).normal(5.0, 1.0, 200)
    forecasts = np.stack([np.stack([log_y, log_y + 3.0], axis=1), np.stack([log_y - 3.0, log_y], axis=1)], axis=1)

    combination = taught(Combination.new(TWO, rows=0), forecasts, log_y)

    assert combination.weights(0.5)[0] > 0.9
    assert combination.weights(0.9)[1] > 0.9


def test_what_a_member_did_long_ago_counts_less_than_what_it_does_now() -> None:
    log_y = np.random.default_rng(1).normal(5.0, 1.0, 600)
    good, bad = np.repeat(log_y[:, None], 2, axis=1), np.repeat(log_y[:, None] + 2.0, 2, axis=1)
    first, second = np.stack([good, bad], axis=1), np.stack([bad, good], axis=1)

    early = taught(Combination.new(TWO, rows=0), first[:300], log_y[:300])
    late = taught(early, second[300:], log_y[300:])

    assert early.weights(0.5)[0] > 0.95
    assert late.weights(0.5)[1] > 0.95


@settings(max_examples=examples(30), deadline=None)
@given(members=MEMBERS, seed=SEEDS, rows=st.sampled_from([60, 500, 3000]))
def test_members_that_forecast_the_same_keep_their_prior_weights(
    members: tuple[str, ...], seed: int, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    log_y = rng.normal(5.0, 1.0, 40)
    same = np.repeat(forecasts_like(log_y, 1, rng), len(members), axis=1)
    start = Combination.new(members, rows=rows)

    combination = taught(start, same, log_y)

    for level in (0.5, 0.9):
        assert combination.weights(level) == pytest.approx(start.weights(level), abs=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(members=MEMBERS, seed=SEEDS, learnt=st.integers(0, 60), noise=st.floats(0.0, 4.0))
def test_quantiles_lie_between_those_of_the_members_and_ascend(
    members: tuple[str, ...], seed: int, learnt: int, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    log_y = rng.normal(5.0, 1.0, learnt + 20)
    forecasts = np.sort(forecasts_like(log_y, len(members), rng, noise), axis=2)
    combination = taught(Combination.new(members, rows=900), forecasts[:learnt], log_y[:learnt])

    asked = forecasts[learnt:]
    found = combination.combined(asked)

    low, high = asked.min(axis=1), asked.max(axis=1)
    high[:, 1] += combination.offset
    low[:, 1] += combination.offset
    assert (found >= low - 1e-9).all()
    assert (found <= high + 1e-9).all()
    assert (found[:, 0] <= found[:, 1]).all()
    assert 0.0 <= combination.offset <= WIDEST


def test_quantiles_that_cross_are_swapped() -> None:
    crossed = np.array([[[5.0, 1.0], [7.0, 3.0]]])

    assert Combination.new(TWO, rows=0).combined(crossed).tolist() == [[2.0, 6.0]]


# The offset of p90.


def test_the_offset_rises_while_jobs_exceed_p90_up_to_its_limit() -> None:
    forecasts, combination, offsets = np.array([[1.0, 2.0], [1.0, 2.0]]), Combination.new(TWO, rows=0), [0.0]
    for _ in range(150):
        combination = combination.learnt(forecasts, 6.0)
        offsets.append(combination.offset)

    assert (np.diff(offsets[:12]) > 0).all()
    assert max(offsets) <= WIDEST
    assert offsets[-1] > 0.8
    assert combination.state[-3] == WIDEST


def test_the_offset_falls_again_to_zero_and_not_below() -> None:
    forecasts = np.array([[1.0, 2.0], [1.0, 2.0]])
    combination = taught(Combination.new(TWO, rows=0), np.repeat(forecasts[None], 20, axis=0), np.full(20, 6.0))
    offsets = [combination.offset]
    for _ in range(150):
        combination = combination.learnt(forecasts, 1.0)
        offsets.append(combination.offset)

    assert offsets[0] > 0.5
    assert offsets[-1] == 0.0
    assert min(offsets) == 0.0


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


@settings(max_examples=examples(40), deadline=None)
@given(jumps=st.lists(st.floats(-20.0, 20.0), min_size=1, max_size=80))
def test_the_offset_stays_within_its_limits(jumps: list[float]) -> None:
    combination = Combination.new(TWO, rows=0)
    for y in jumps:
        combination = combination.learnt(np.array([[0.0, 1.0], [0.5, 1.5]]), y)

        assert 0.0 <= combination.offset <= WIDEST
        assert 0.0 <= combination.state[-3] <= WIDEST


# Walking through a trace.


@settings(max_examples=examples(40), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(1, 60))
def test_learning_one_by_one_is_walking_to_the_bit(members: tuple[str, ...], seed: int, n: int) -> None:
    jobs, start = history(n, len(members), seed), Combination.new(members, rows=700)

    found, walked = start.walked(**jobs)

    ended = np.flatnonzero(~np.isnan(jobs["log_y"]))
    order = ended[np.lexsort((jobs["log_y"][ended], jobs["end_us"][ended]))]
    one_by_one = taught(start, jobs["forecasts"][order], jobs["log_y"][order])
    assert walked.state.tobytes() == one_by_one.state.tobytes()
    assert (walked.members, walked.prior.tolist()) == (start.members, start.prior.tolist())
    for row in range(n):
        seen = order[jobs["end_us"][order] < jobs["submit_us"][row]]
        known = taught(start, jobs["forecasts"][seen], jobs["log_y"][seen])
        assert known.combined(jobs["forecasts"][row : row + 1]).tobytes() == found[row].tobytes()


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


@settings(max_examples=examples(30), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(2, 60))
def test_the_order_of_the_rows_does_not_matter(members: tuple[str, ...], seed: int, n: int) -> None:
    jobs, start = history(n, len(members), seed), Combination.new(members, rows=700)
    order = np.random.default_rng(seed + 1).permutation(n)

    straight, state = start.walked(**jobs)
    shuffled, other = start.walked(**{name: values[order] for name, values in jobs.items()})

    assert shuffled.tobytes() == straight[order].tobytes()
    assert other.state.tobytes() == state.state.tobytes()


def test_the_order_of_jobs_that_end_together_after_equal_run_times_does_not_matter() -> None:
    # Two tasks of one job: they end together, but their forecasts differ. A third job is submitted later.
    forecasts = np.array([[[1.0, 2.0], [3.0, 4.0]], [[2.0, 3.0], [0.0, 9.0]], [[1.0, 2.0], [5.0, 8.0]]])
    jobs = {
        "submit_us": np.array([0, 0, 9]),
        "end_us": np.array([5, 5, 99]),
        "forecasts": forecasts,
        "log_y": np.array([2.5, 2.5, 1.0]),
    }

    (straight, _), (swapped, _) = (
        Combination.new(TWO, rows=0).walked(**{name: values[order] for name, values in jobs.items()})
        for order in ([0, 1, 2], [1, 0, 2])
    )

    assert swapped[2].tolist() == straight[2].tolist()


def test_a_job_that_ends_at_the_instant_of_a_submission_is_not_known_to_it() -> None:
    forecasts = np.tile([1.0, 2.0], (3, 2, 1))
    times = {"submit_us": np.array([0, 10, 11]), "end_us": np.array([10, 99, 99])}

    found, _ = Combination.new(TWO, rows=0).walked(**times, forecasts=forecasts, log_y=np.array([9.0, 1.0, 1.0]))

    assert found.tolist() == [[1.0, 2.0], [1.0, 2.0], [1.0, pytest.approx(2.0 + 0.9 * STEP / 2)]]


def test_a_trace_without_jobs_or_without_ends_teaches_nothing() -> None:
    start = Combination.new(TWO, rows=0)
    none = np.zeros(0, dtype=np.int64)

    empty, after = start.walked(submit_us=none, end_us=none, forecasts=np.zeros((0, 2, 2)), log_y=np.zeros(0))
    running, still = start.walked(
        submit_us=np.arange(3), end_us=np.full(3, 2**62), forecasts=np.ones((3, 2, 2)), log_y=np.full(3, np.nan)
    )

    assert (empty.shape, running.tolist()) == ((0, 2), [[1.0, 1.0]] * 3)
    assert not after.state.any()
    assert not still.state.any()


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


def slow_walk(start: Combination, jobs: dict[str, npt.NDArray]) -> list[list[float]]:
    rows, log_y = jobs["forecasts"].tolist(), jobs["log_y"].tolist()
    answers = []
    for submit, asked in zip(jobs["submit_us"].tolist(), rows, strict=True):
        before = [i for i, end in enumerate(jobs["end_us"].tolist()) if end < submit and log_y[i] == log_y[i]]
        ended = [(rows[i], log_y[i]) for i in sorted(before, key=lambda i: (jobs["end_us"][i], log_y[i]))]
        p50, p90 = (slow_mixture(start, ended, asked, place) for place in (0, 1))
        answers.append(sorted([p50, p90 + slow_offset(start, ended)]))
    return answers


@settings(max_examples=examples(12), deadline=None)
@given(members=MEMBERS, seed=SEEDS, n=st.integers(1, 24), rows=st.sampled_from([1, 700, 40_000, 10**6]))
def test_a_walk_is_that_of_the_formulas(members: tuple[str, ...], seed: int, n: int, rows: int) -> None:
    jobs, start = history(n, len(members), seed), Combination.new(members, rows=rows)

    found, _ = start.walked(**jobs)

    assert found == pytest.approx(np.array(slow_walk(start, jobs)), abs=1e-9)


# In a model card.


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
        ({"state": [-1.0] + [0.5] * 9}, "none below 0"),
        ({"state": [0.5] * 9 + [math.nan]}, "finite number"),
        ({"state": [0.5] * 9 + [math.inf]}, "finite number"),
        ({"state": [0.5] * 9 + ["many"]}, "valid number"),
        ({"weights": [0.5, 0.5]}, "Extra inputs"),
    ],
)
def test_a_state_that_is_not_one_is_refused(change: dict[str, object], said: str) -> None:
    assert CombinationState.model_validate(GOOD).members == TWO

    with pytest.raises(ValidationError, match=said):
        CombinationState.model_validate({**GOOD, **change})


def test_a_card_holds_a_combination_and_tells_whether_it_has_a_forest(bundles: dict[str, Bundle]) -> None:
    values = bundles["runtime.pai.ctr"].card.model_dump(mode="json")

    def card(*members: str) -> Card:
        return card_from({**values, "combination": Combination.new(members, rows=300).stored().model_dump()})

    assert (card("forest", "reference").has_forest, card(*TWO).has_forest) == (True, False)
    assert Card.model_validate_json(card(*TWO).to_json()).combination == Combination.new(TWO, rows=300).stored()
    assert not card_from({**values, "combination": None}).has_forest
    with pytest.raises(BundleError, match=r"combination\.members\.0: .*at least 1 character"):
        card_from({**values, "combination": {**GOOD, "members": ["", "reference"]}})
    with pytest.raises(BundleError, match=r"combination: .*a state of 10 numbers, expected 8"):
        card_from({**values, "combination": {**GOOD, "members": ["reference"]}})


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

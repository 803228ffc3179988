"""The state of a combination in a model card: kept to the bit, and refused if it is none."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from features.contract import FeatureContract
from modelserve.bundle.card import WIDEST, Card, CombinationState, card_from
from modelserve.bundle.combination import Combination
from modelserve.errors import BundleError
from tests.examples import examples
from tests.modelserve.combining import MEMBERS, SEEDS, TWO, forecasts_like, taught
from tests.modelserve.conftest import make_card


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

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.budget import Bank

grams = st.floats(0.0, 1e6)


@given(st.lists(st.tuples(grams, st.floats(0.0, 1.0)), min_size=1, max_size=40), grams)
def test_within_allowances_no_more_is_taken_than_was_shared_out(periods, most_g: float) -> None:
    bank, shared_g, spent_g = Bank(most_g=most_g), 0.0, 0.0
    for share_g, part in periods:
        taken_g = bank.allowance_g(share_g=share_g) * part
        bank = bank.after(share_g=share_g, spent_g=taken_g)
        shared_g, spent_g = shared_g + share_g, spent_g + taken_g
        assert spent_g <= shared_g * (1.0 + 1e-9)
        assert -1e-6 <= bank.balance_g <= most_g
        assert bank.balance_g <= shared_g - spent_g + 1e-6 * (1.0 + shared_g)


def test_without_room_in_the_bank_what_is_unused_is_lost() -> None:
    assert Bank(most_g=0.0).after(share_g=100.0, spent_g=10.0).allowance_g(share_g=100.0) == 100.0


def test_what_was_taken_too_much_is_owed() -> None:
    bank = Bank(most_g=50.0).after(share_g=100.0, spent_g=230.0)

    assert bank.allowance_g(share_g=100.0) == 0.0
    assert bank.after(share_g=100.0, spent_g=0.0).allowance_g(share_g=100.0) == 70.0


@pytest.mark.parametrize(("most_g", "balance_g"), [(-1.0, 0.0), (1.0, 2.0), (np.nan, 0.0)])
def test_banks_that_cannot_be_are_refused(most_g: float, balance_g: float) -> None:
    with pytest.raises(BadInput, match="carbon bank"):
        Bank(most_g=most_g, balance_g=balance_g)


@pytest.mark.parametrize(("share_g", "spent_g"), [(-1.0, 0.0), (1.0, -1.0), (1.0, np.nan)])
def test_impossible_periods_are_refused(share_g: float, spent_g: float) -> None:
    with pytest.raises(BadInput, match="emitted"):
        Bank(most_g=1.0).after(share_g=share_g, spent_g=spent_g)

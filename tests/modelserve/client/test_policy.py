"""When and where a call is tried again, without a service."""

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.client.policy import Retries, Timeouts, Turns, retry_after_s
from modelserve.errors import BadRequest

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@given(failures=st.integers(1, 5000), drawn=st.floats(0.0, 1.0, exclude_max=True))
def test_a_wait_grows_to_its_bound_and_no_further(failures: int, drawn: float) -> None:
    retries = Retries(first_wait_s=0.1, longest_wait_s=2.0)

    wait = retries.wait_s(failures, drawn)

    assert wait == drawn * min(2.0, 0.1 * 2.0 ** min(failures - 1, 60))


@given(
    addresses=st.integers(1, 5),
    tries=st.integers(1, 4),
    first=st.integers(0, 4),
    statuses=st.lists(st.sampled_from([None, 429, 503]), max_size=25),
    seed=st.integers(0, 99),
)
def test_every_address_is_tried_as_often_as_allowed_and_never_before_it_is_free(
    addresses: int, tries: int, first: int, statuses: list[int | None], seed: int
) -> None:
    turns = Turns(addresses=addresses, first=first % addresses, retries=Retries(tries=tries), rng=random.Random(seed))
    now, asked = 0.0, []

    while (turn := turns.next()) is not None:
        address, free_at = turn
        assert all(free_at >= until for at, until in asked if at == address)
        now = max(now, free_at)
        status = statuses[len(asked)] if len(asked) < len(statuses) else None
        turns.failed(address, now=now, status=status, retry_after_s=1.0 if status else 0.0)
        asked.append((address, now + (1.0 if status else 0.0)))

    assert [at for at, _ in asked].count(0) == tries
    assert len(asked) == addresses * tries


def test_the_other_address_is_tried_at_once_when_one_is_away() -> None:
    turns = Turns(addresses=2, first=1, retries=Retries(), rng=random.Random(1))

    assert turns.next() == (1, 0.0)
    turns.failed(1, now=5.0)

    assert turns.next() == (0, 0.0)


def test_too_many_calls_holds_at_every_address() -> None:
    turns = Turns(addresses=2, first=0, retries=Retries(), rng=random.Random(1))

    turns.failed(0, now=5.0, status=429, retry_after_s=3.0)

    assert turns.next()[1] >= 8.0


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, 0.0),
        ("", 0.0),
        ("3", 3.0),
        (" 3 ", 3.0),
        ("-3", 0.0),
        ("nan", 0.0),
        ("9" * 400, 999_999_999.0),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 99 Nov 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(said: str | None, expected: float) -> None:
    assert retry_after_s(said, NOON) == expected


@given(st.text())
def test_no_retry_after_breaks_a_client(said: str) -> None:
    assert retry_after_s(said, NOON) >= 0.0


@pytest.mark.parametrize("limits", [{"connect_s": 0.0}, {"answer_s": -1.0}, {"total_s": float("nan")}])
def test_a_time_that_is_none_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(BadRequest, match=next(iter(limits))):
        Timeouts(**limits)


@pytest.mark.parametrize("changes", [{"tries": 0}, {"first_wait_s": 3.0}, {"longest_wait_s": float("inf")}])
def test_retries_that_cannot_be_meant_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(BadRequest, match="retries"):
        Retries(**changes)

"""Retries and timeouts without a service, and the circuit breaker."""

import random
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.client.policy import Breaker, Retries, Timeouts, Turns, retry_after_s
from modelserve.errors import BadRequest

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


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


@pytest.mark.parametrize("parameters", [{"failures": 0}, {"cool_down_s": 0.0}, {"cool_down_s": float("inf")}])
def test_a_breaker_that_never_closes_again_is_refused(parameters: dict[str, float]) -> None:
    with pytest.raises(BadRequest):
        Breaker(**parameters, clock=time.monotonic)


STEPS = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["ok", "failed", "silent"])), max_size=40)


@given(steps=STEPS, failures=st.integers(1, 4))
def test_a_breaker_admits_again_after_every_rest(steps: list[tuple[int, str]], failures: int) -> None:
    now = [0.0]
    breaker = Breaker(failures=failures, cool_down_s=30.0, clock=lambda: now[0])
    in_a_row = 0
    for wait_s, outcome in steps:
        now[0] += wait_s
        state = breaker.state
        assert breaker.admits() == (state != "open")
        if state == "half_open":
            assert not breaker.admits()  # one tries, the others wait
        if state == "open" or outcome == "silent":
            continue
        in_a_row = 0 if outcome == "ok" else in_a_row + 1
        if outcome == "ok":
            breaker.succeeded()
        else:
            breaker.failed()
        assert breaker.rest_s <= 30.0
        assert in_a_row < failures or breaker.state == "open"
        assert in_a_row > 0 or breaker.state == "closed"
    now[0] += breaker.rest_s
    assert breaker.admits()

"""The circuit breaker, alone and in front of a service that fails."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.client.breaker import LONGEST_REST_S, Breaker
from modelserve.client.http_scale import HttpScale
from scheduler_core.errors import BadInput
from scheduler_core.types import Job
from tests.modelserve.client.services import answering, each, http, replying, serving
from tests.scheduler_core.cases import job, request


def patient(address: str, breaker: Breaker) -> HttpScale:
    return HttpScale(address, breaker=breaker, deadline_s=30.0)


def asked(count: int) -> list[Job]:
    return [job(f"j{i}", request(4.0, 8.0, 0.5)) for i in range(count)]


@pytest.mark.parametrize("parameters", [{"failures": 0}, {"cool_down_s": 0.0}, {"cool_down_s": float("inf")}])
def test_a_breaker_that_never_closes_again_is_refused(parameters: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Breaker(**parameters, clock=time.monotonic)


STEPS = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["ok", "failed", "rest", "silent"])), max_size=40)


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
            breaker.failed(asked_rest_s=1e9 if outcome == "rest" else 0.0)
        assert breaker.rest_s <= LONGEST_REST_S
        assert in_a_row < failures or breaker.state == "open"
        assert in_a_row > 0 or breaker.state == "closed"
    now[0] += breaker.rest_s
    assert breaker.admits()


def test_the_breaker_leaves_a_failing_service_alone_and_tries_again_later() -> None:
    now = [0.0]
    breaker = Breaker(failures=2, cool_down_s=30.0, clock=lambda: now[0])
    failing = replying(http(b"", "500 Internal Server Error"))
    with serving(failing, failing, answering()) as service, patient(service.address, breaker) as scale:
        for _ in range(4):
            [resting] = scale(asked(1))
        calls_while_open = len(service.bodies)
        now[0] = 30.0
        [answered] = scale(asked(1))
    assert calls_while_open == 2
    assert resting.note == "not asked about: the service failed, and rests 30 s"
    assert answered.target.gpus == 0.1
    assert breaker.state == "closed"


def test_a_service_that_asks_for_rest_is_left_alone_for_that_long_but_not_for_ever() -> None:
    now = [0.0]
    breaker = Breaker(failures=5, cool_down_s=1.0, clock=lambda: now[0])
    busy = replying(http(b"{}", "429 Too Many Requests", retry_after="7"))
    greedy = replying(http(b"{}", "503 Service Unavailable", retry_after="999999"))
    with serving(busy, greedy, answering()) as service, patient(service.address, breaker) as scale:
        scale(asked(1))
        assert breaker.rest_s == 7.0
        now[0] = 7.0
        scale(asked(1))
        assert breaker.rest_s == 300.0
        now[0] = 307.0
        [answer] = scale(asked(1))
    assert answer.target.gpus == 0.1


def test_a_row_that_cannot_be_meant_does_not_open_the_breaker() -> None:
    breaker = Breaker(failures=1, clock=time.monotonic)
    with serving(each(target__gpus=9.0)) as service, patient(service.address, breaker) as scale:
        scale(asked(1))
    assert breaker.state == "closed"

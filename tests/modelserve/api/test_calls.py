"""Slots: a bound on what is at work, and on how long an answer takes."""

import asyncio
import threading

import pytest

from modelserve.api.calls import Rates, Slots
from modelserve.api.problems import Refusal


def test_a_call_beyond_the_limit_is_told_to_come_again() -> None:
    async def calls() -> tuple[int, Refusal]:
        slots, held = Slots(limit=1, answer_limit_s=10.0), threading.Event()
        first = asyncio.ensure_future(slots.run(lambda: held.wait(10.0) and 7))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await slots.run(lambda: 8)
        held.set()
        return await first, refused.value

    answer, refusal = asyncio.run(calls())

    assert answer == 7
    assert refusal.status == 503
    assert refusal.headers["retry-after"] == "1"


def test_an_answer_that_takes_too_long_is_given_up_and_its_slot_kept_until_it_ends() -> None:
    async def call() -> tuple[Refusal, int, Slots]:
        slots, held = Slots(limit=4, answer_limit_s=0.01), threading.Event()
        with pytest.raises(Refusal) as refused:
            await slots.run(lambda: held.wait(10.0))
        taken = slots.taken
        held.set()
        return refused.value, taken, slots

    refusal, taken, slots = asyncio.run(call())
    slots.close()

    assert refusal.status == 503
    assert taken == 1


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    rates = Rates(2.0, clock=lambda: now[0])
    rates.take("a")
    rates.take("a")

    with pytest.raises(Refusal) as refused:
        rates.take("a")
    rates.take("b")
    now[0] = 0.5
    rates.take("a")

    assert refused.value.status == 429
    assert refused.value.headers["retry-after"] == "1"

"""A call on its way: answers, tries, and everything a socket can do instead of answering."""

import asyncio
import socket
import time
from collections.abc import Callable

import httpx2
import pytest

from modelserve.client.exchange import FOREIGN, Exchange
from modelserve.client.messages import Call, message_of
from modelserve.contract.calls import MODELS, SET_MODE
from modelserve.errors import BadRequest, ClientError, Refused, ServiceUnavailable, WrongAnswer
from tests.modelserve.client.conftest import Time, half, reply, reset
from tests.modelserve.client.services import Service, dripping_head, silent

Serve = Callable[..., Service]
Make = Callable[..., Exchange]
READ = message_of(MODELS)
WRITE = message_of(SET_MODE, b'{"mode":"enforce"}')


def sent(exchange: Exchange, call: Call = READ) -> bytes:
    async def run() -> bytes:
        try:
            return await exchange.send(call, exchange.deadline())
        finally:
            await exchange.close()

    return asyncio.run(run())


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("failure", [half, reset, reply(502), reply(503), reply(504), reply(429)])
def test_a_call_that_changes_nothing_is_sent_again(
    serve: Serve, exchange_of: Make, passing: Time, failure: object
) -> None:
    service = serve(failure, failure, reply(200, b"7"))

    assert sent(exchange_of(service.address)) == b"7"
    assert len(service.seen) == 3
    assert len(passing.slept) == 2
    assert 0.0 < passing.slept[0] < 0.1
    assert 0.0 < passing.slept[1] < 0.2


@pytest.mark.parametrize("failure", [half, reset, reply(503)])
def test_a_call_that_changes_something_is_sent_once(serve: Serve, exchange_of: Make, failure: object) -> None:
    service = serve(failure)

    with pytest.raises(ServiceUnavailable, match="may have been done"):
        sent(exchange_of(service.address), WRITE)

    assert len(service.seen) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 422])
def test_a_refusal_is_final_and_carries_the_problem(serve: Serve, exchange_of: Make, status: int) -> None:
    service = serve(reply(status, {"title": "No", "detail": "jobs.0.instances: found 0, expected at least 1"}))

    with pytest.raises(Refused, match=r"jobs\.0\.instances: found 0") as caught:
        sent(exchange_of(service.address))

    assert caught.value.status == status
    assert caught.value.problem["title"] == "No"
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    ("answer", "expected"), [(reply(500, b"oops"), ServiceUnavailable), (reply(302, location="/"), WrongAnswer)]
)
def test_what_is_neither_answer_nor_refusal_is_final(
    serve: Serve, exchange_of: Make, answer: object, expected: type[ClientError]
) -> None:
    service = serve(answer)

    with pytest.raises(expected):
        sent(exchange_of(service.address))

    assert len(service.seen) == 1


def test_retry_after_is_honoured(serve: Serve, exchange_of: Make, passing: Time) -> None:
    service = serve(reply(503, retry_after="7"), reply(429, retry_after="Fri, 20 Nov 2026 12:00:05 GMT"), reply(200))

    sent(exchange_of(service.address))

    assert 7.0 <= passing.slept[0] < 7.1
    assert 5.0 <= passing.slept[1] < 5.2


def test_a_wait_beyond_the_end_is_not_waited_for(serve: Serve, exchange_of: Make, passing: Time) -> None:
    service = serve(reply(503, {"detail": "64 calls at work"}, retry_after="60"))

    with pytest.raises(ServiceUnavailable, match="64 calls at work"):
        sent(exchange_of(service.address, total_s=30.0))

    assert passing.slept == []


@pytest.mark.parametrize("silence", [silent, dripping_head])
def test_a_service_that_hangs_is_left_when_the_time_is_over(serve: Serve, exchange_of: Make, silence: object) -> None:
    service = serve(silence)
    began = time.monotonic()

    with pytest.raises(ServiceUnavailable, match=r"did not answer within|ReadTimeout"):
        sent(exchange_of(service.address, connect_s=0.05, answer_s=0.05, total_s=0.1))

    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("silence", [silent, dripping_head, reset, reply(503, retry_after="9")])
def test_another_address_takes_over_without_a_wait(
    serve: Serve, exchange_of: Make, passing: Time, silence: object
) -> None:
    sick, sound = serve(silence), serve(reply(200, b"1"))

    assert sent(exchange_of(sick.address, sound.address, answer_s=0.2)) == b"1"
    assert passing.slept == []


def test_the_address_that_answered_is_asked_first(serve: Serve, exchange_of: Make) -> None:
    away, sound = closed_port(), serve(reply(200, b"1"))
    exchange = exchange_of(away, sound.address)

    async def run() -> None:
        await exchange.send(READ, exchange.deadline())
        await exchange.send(WRITE, exchange.deadline())
        await exchange.close()

    asyncio.run(run())

    assert [first.split()[0] for first, _, _ in sound.seen] == ["GET", "POST"]


def test_nothing_is_sent_once_the_time_is_over(serve: Serve, exchange_of: Make, passing: Time) -> None:
    service = serve(reply(200))
    exchange = exchange_of(service.address)

    async def run() -> None:
        deadline = exchange.deadline()
        passing.at += 31.0
        await exchange.send(READ, deadline)

    with pytest.raises(ServiceUnavailable, match="0 tries"):
        asyncio.run(run())
    assert service.seen == []


def foreign_errors() -> list[type[Exception]]:
    found = [value for value in vars(httpx2).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("kind", foreign_errors())
def test_no_error_of_httpx2_leaks(kind: type[Exception], exchange_of: Make) -> None:
    def fail(request: httpx2.Request) -> httpx2.Response:
        error = kind.__new__(kind)
        error.args = ("broken",)
        raise error

    with pytest.raises(ServiceUnavailable, match=kind.__name__):
        sent(exchange_of("http://service", transport=httpx2.MockTransport(fail)))
    assert issubclass(kind, FOREIGN)


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:80", "ftp://host", "http://", "http://host:70000", "http://host?a=b", "http://[::1"]
)
def test_what_is_no_address_is_refused(address: str, exchange_of: Make) -> None:
    with pytest.raises(BadRequest, match="expected one as http"):
        exchange_of(address)


def test_a_password_in_an_address_is_refused_and_not_shown(exchange_of: Make) -> None:
    with pytest.raises(BadRequest, match="user name") as caught:
        exchange_of("http://me:hunter2@host")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nx: y", "tökèn"])
def test_a_token_that_is_no_header_is_refused_and_not_shown(token: str, exchange_of: Make) -> None:
    with pytest.raises(BadRequest, match="visible ASCII") as caught:
        exchange_of("http://host", token=token)

    assert not token or token not in str(caught.value)

"""One client can hold a connection for only so long: half-open, endless, unread and too many ones."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.modelserve.server.running import Running, until

Start = Callable[..., Running]
HALF_OPEN = 400


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        yield client


def everything(client: socket.socket) -> bytes:
    """Read until the server closes; a reset is a close, too."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(65536):
            received += data
    return received


def test_a_request_head_that_never_ends_is_answered_with_408(launch: Start) -> None:
    server = launch(header_read_limit_s=0.5)
    with connected(server) as client:
        began = time.monotonic()
        client.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\n")
        answer = everything(client)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 408
    assert time.monotonic() - began < 3


def test_a_connection_without_a_byte_is_closed_without_a_word(launch: Start) -> None:
    server = launch(header_read_limit_s=0.5)
    with connected(server) as client:
        assert everything(client) == b""


def test_head_and_body_of_a_small_response_are_sent_together(server: Running) -> None:
    """A proxy whose server dies between them could not ask another server."""
    with connected(server) as client:
        for _ in range(50):
            client.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\n\r\n")
            head, _, body = client.recv(65536).partition(b"\r\n\r\n")

            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert json.loads(body)["pid"] == server.workers()[0]


@pytest.mark.slow
@pytest.mark.parametrize("drip", [b"x", b"\r\n"])
def test_a_drip_does_not_buy_time_on_a_connection_that_was_answered_before(launch: Start, drip: bytes) -> None:
    server = launch(header_read_limit_s=0.5)
    with connected(server) as client:
        client.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\n\r\n")
        first = client.recv(65536)
        client.settimeout(0.1)
        began = time.monotonic()
        while time.monotonic() - began < 5:
            try:
                client.sendall(drip)
                if not client.recv(65536):
                    break
            except TimeoutError:
                continue
            except OSError:
                break

    assert first.startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 3


def test_a_head_without_end_is_refused_with_431(server: Running) -> None:
    with connected(server) as client:
        client.sendall(b"GET /pid HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(3000):
                client.sendall(b"x-more: " + b"y" * 100 + b"\r\n")
        answer = everything(client)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
    assert server.get("/pid")[0] == 200


def test_a_head_just_below_the_limit_is_taken(server: Running) -> None:
    with connected(server) as client:
        client.sendall(
            b"GET /pid HTTP/1.1\r\nhost: here\r\nconnection: close\r\nx-more: " + b"y" * 60_000 + b"\r\n\r\n"
        )
        assert everything(client).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_half_open_connections_keep_nobody_from_an_answer(launch: Start) -> None:
    server = launch(connections_limit=HALF_OPEN // 2, header_read_limit_s=30)
    with ExitStack() as held:
        for number in range(HALF_OPEN):
            client = held.enter_context(connected(server))
            client.sendall(b"POST /slow HTTP/1.1\r\n" if number % 2 else b"")
        time_to_settle(server)
        took, statuses = [], []
        for number in range(50):
            began = time.monotonic()
            status, body = server.get(f"/pid?id={number}")
            took.append(time.monotonic() - began)
            statuses.append((status, json.loads(body)["id"]))

    assert statuses == [(200, str(number)) for number in range(50)]
    assert max(took) < 1.0


def time_to_settle(server: Running) -> None:
    """Wait until the half-open connections count as such: then one answer comes through."""
    until(lambda: server.get("/pid")[0] == 200, within_s=5, what="a place")


@pytest.mark.slow
def test_a_connection_too_many_is_answered_with_503_and_when_to_come_back(launch: Start) -> None:
    server = launch(connections_limit=2)
    with ExitStack() as held:
        busy = [held.enter_context(connected(server)) for _ in range(2)]
        for client in busy:
            client.sendall(b"GET /slow?s=1.5 HTTP/1.1\r\nhost: here\r\n\r\n")
        with connected(server) as client:
            client.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\n\r\n")
            answer = everything(client)
        first = busy[0].recv(65536)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503")
    assert b"\r\nretry-after: 1" in head
    assert json.loads(body)["status"] == 503
    assert first.startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_an_answer_that_nobody_reads_is_dropped(launch: Start) -> None:
    server = launch(body_read_limit_s=0.5)
    with connected(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /large?bytes=50000000 HTTP/1.1\r\nhost: here\r\n\r\n")
        until(lambda: not established(server.port, client), within_s=10, what="the end of the connection")
        status = server.get("/pid")[0]

    assert status == 200


@pytest.mark.slow
def test_an_answer_that_is_read_slowly_arrives_whole(launch: Start) -> None:
    server = launch(body_read_limit_s=0.5)
    with connected(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(b"GET /large?bytes=12000000 HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        received, began = 0, time.monotonic()
        while data := client.recv(65536):
            received += len(data)
            while time.monotonic() - began < received / 6_000_000:
                time.sleep(0.01)

    assert received > 12_000_000


def test_a_body_refused_early_may_be_sent_to_its_end_and_the_refusal_is_read(server: Running) -> None:
    with connected(server) as client:
        client.sendall(b"POST /refused HTTP/1.1\r\nhost: here\r\ncontent-length: 8000000\r\n\r\n")
        for _ in range(80):
            client.sendall(b"x" * 100_000)
        answer = client.recv(65536)
        client.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        after = everything(client)

    assert answer.startswith(b"HTTP/1.1 413")
    assert after.startswith(b"HTTP/1.1 200")


def test_a_body_refused_for_good_is_read_to_its_end_and_then_the_connection_closed(server: Running) -> None:
    with connected(server) as client:
        client.sendall(b"POST /refused?close=yes HTTP/1.1\r\nhost: here\r\ncontent-length: 8000000\r\n\r\n")
        for _ in range(80):
            client.sendall(b"x" * 100_000)
        answer = everything(client)

    assert answer.startswith(b"HTTP/1.1 413")
    assert answer.endswith(b'{"detail":"too large"}')


def test_a_body_refused_for_good_keeps_the_server_from_no_end(launch: Start) -> None:
    server = launch(stop_limit_s=30)
    with connected(server) as client:
        client.sendall(b"POST /refused?close=yes HTTP/1.1\r\nhost: here\r\ncontent-length: 8000000\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 413")
        began = time.monotonic()
        code = server.end()

    assert code == 0
    assert time.monotonic() - began < 5


@pytest.mark.slow
@pytest.mark.parametrize("close", [b"", b"?close=yes"])
def test_a_body_refused_early_that_goes_on_and_on_is_cut_off(launch: Start, close: bytes) -> None:
    server = launch(body_read_limit_s=0.5)
    with connected(server) as client:
        client.sendall(b"POST /refused" + close + b" HTTP/1.1\r\nhost: here\r\ncontent-length: 800000000000\r\n\r\n")
        until(lambda: not _sent(client, b"x" * 10_000), within_s=5, what="the end of the connection")

        assert not _sent(client, b"x"), "it stays cut off"


def _sent(client: socket.socket, data: bytes) -> bool:
    with contextlib.suppress(ConnectionError):
        client.sendall(data)
        return True
    return False


def established(port: int, client: socket.socket) -> bool:
    """Tell whether the server still holds its end of a client's connection."""
    from pathlib import Path

    theirs, ours = f"0100007F:{port:04X}", f"0100007F:{client.getsockname()[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[1] == theirs and row[2] == ours and row[3] == "01" for row in rows)

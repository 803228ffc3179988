"""Attacks on connections: invalid heads are refused, floods are outlived, too few open files are named at the start."""

import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from modelserve.errors import ListenError
from modelserve.server.environment import LEAST_CONNECTIONS, SPARE_FILES, allow_open_files
from tests.modelserve.server.running import Running, until
from tests.modelserve.server.test_connection import connected, everything

Start = Callable[..., Running]
FLOOD = 2500
HOST = b"host: here\r\n"
INVALID = {
    "two tokens": (b"authorization: Bearer a\r\nauthorization: Bearer b\r\n" + HOST, b"HTTP/1.1 400"),
    "no host": (b"", b"HTTP/1.1 400"),
    "two hosts": (HOST + HOST, b"HTTP/1.1 400"),
    "more than 64 kB at once": (HOST + b"x: " + b"y" * 66_000 + b"\r\n", b"HTTP/1.1 431"),
}


def test_invalid_heads_are_refused_and_the_connection_closed(server: Running) -> None:
    found = {}
    for name, (headers, _) in INVALID.items():
        with connected(server) as client:
            client.sendall(b"GET /pid HTTP/1.1\r\n" + headers + b"\r\n")
            found[name] = everything(client)

    assert {name: answer[:12] for name, answer in found.items()} == {
        name: begin for name, (_, begin) in INVALID.items()
    }
    assert all(b"application/problem+json" in answer for answer in found.values())
    assert server.get("/pid")[0] == 200


def test_a_refused_head_with_a_body_is_answered_once(server: Running) -> None:
    with connected(server) as client:
        client.sendall(b"POST /slow?s=0 HTTP/1.1\r\ncontent-length: 70000\r\n\r\n" + b"x" * 70_000)
        answer = everything(client)

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_large_body_sent_with_its_head_is_no_large_head(server: Running) -> None:
    with connected(server) as client:
        head = b"POST /slow?s=0 HTTP/1.1\r\nconnection: close\r\ncontent-length: 70000\r\n" + HOST
        client.sendall(head + b"\r\n" + b"x" * 70_000)
        answer = everything(client)

    assert answer.startswith(b"HTTP/1.1 200")


def test_http_1_0_needs_no_host(server: Running) -> None:
    with connected(server) as client:
        client.sendall(b"GET /pid HTTP/1.0\r\n\r\n")
        assert everything(client).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_calls_are_served_within_a_second_during_a_flood_of_half_open_connections(launch: Start) -> None:
    server = launch(header_read_limit_s=30)
    port, over = server.port, threading.Event()
    took: list[tuple[float, int]] = []

    def call() -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/pid", timeout=20) as answer:
                    status = answer.status
            except urllib.error.HTTPError as error:
                status = error.code
            except OSError:
                status = 0
            took.append((time.monotonic() - began, status))
            time.sleep(0.02)

    with open_files(FLOOD + 500), ExitStack() as held:
        caller = threading.Thread(target=call)
        caller.start()
        until(lambda: len(took) > 5, what="calls")
        before = len(took)
        for _ in range(FLOOD):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        time.sleep(5)
        over.set()
        caller.join()

    during = took[before - 1 :]
    served = sum(status == 200 and seconds <= 1.0 for seconds, status in during)
    assert len(during) > 20
    assert served >= 0.95 * len(during), sorted(during)[-10:]


class open_files:  # noqa: N801  # a context manager that reads as a function
    """Allow this process so many open files."""

    def __init__(self, number: int) -> None:
        self.number, self.before = number, resource.getrlimit(resource.RLIMIT_NOFILE)

    def __enter__(self) -> None:
        if self.before[0] < self.number:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(self.number, self.before[1]), self.before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.before)


def limited(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    limits = [hard // 2, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.__setitem__(slice(None), new))


def test_the_connections_fit_the_open_files_that_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, hard=SPARE_FILES + 200)
    assert allow_open_files(1000) == 100
    assert allow_open_files(50) == 50


def test_too_few_open_files_are_an_error_with_the_number_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, hard=64)
    needed = SPARE_FILES + 2 * LEAST_CONNECTIONS
    with pytest.raises(ListenError, match=f"limit of 64 open files, expected at least {needed}"):
        allow_open_files(1000)

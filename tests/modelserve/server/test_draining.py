"""The end in order: not ready first, answering all the while, what is at work finished, exit 0."""

import http.client
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.modelserve.server.running import Running, until

Start = Callable[..., Running]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_it_says_not_ready_first_and_goes_on_answering(launch: Start, workers: int) -> None:
    server = launch(workers=workers, drain_s=1.5)
    before = server.get("/readyz")[0]

    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.get("/readyz")[0] == 503, within_s=1.0, what="/readyz 503")
    answered = server.get("/pid")[0]

    assert (before, answered) == (200, 200)
    assert server.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_calls_at_work_are_finished_and_no_new_ones_taken(launch: Start, number: signal.Signals) -> None:
    server = launch(workers=2)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(server.get, "/slow?s=1.5") for _ in range(4)]
        until(lambda: _connections(server.port) >= 4, what="the calls")
        server.process.send_signal(number)
        until(lambda: not _accepts(server.port), within_s=1.0, what="the closed door")
        statuses = [call.result()[0] for call in calls]

    assert statuses == [200] * 4
    assert server.end() == 0


def test_answers_while_draining_close_their_connections(launch: Start) -> None:
    server = launch(drain_s=1.5)
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    client.request("GET", "/pid")
    first = client.getresponse()
    first.read()

    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.get("/readyz")[0] == 503, within_s=1.0, what="/readyz 503")
    client.request("GET", "/pid")
    second = client.getresponse()
    second.read()
    client.close()

    assert (first.status, first.getheader("connection")) == (200, None)
    assert (second.status, second.getheader("connection")) == (200, "close")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_ends_it_faster(launch: Start, workers: int) -> None:
    server = launch(workers=workers, drain_s=60, stop_limit_s=60)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.get("/readyz")[0] == 503, what="/readyz 503")

    began = time.monotonic()
    code = server.end(signal.SIGTERM)

    assert code == 0
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_call_without_end_is_broken_off_at_the_limit(launch: Start) -> None:
    server = launch(stop_limit_s=1)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.get, "/slow?s=600")
        until(lambda: _connections(server.port) >= 1, what="the call")
        began = time.monotonic()
        code = server.end()
        with pytest.raises((OSError, http.client.HTTPException)):
            call.result()

    assert code == 0
    assert time.monotonic() - began < 8


def _connections(port: int) -> int:
    """Count the established connections to a port of the loopback."""
    wanted = f"0100007F:{port:04X}"
    with Path("/proc/net/tcp").open() as table:
        return sum(line.split()[1] == wanted and line.split()[3] == "01" for line in table)


def _accepts(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0

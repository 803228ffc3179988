"""The harness itself: bars, slopes, and calls at a pace, against a server made for it."""

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.benchmarks.serving.figures import Bar, ratio_row
from tests.benchmarks.serving.paced import BROKEN, Answer, drive, even, request
from tests.benchmarks.serving.slope import slope_of


class Echo(threading.Thread):
    """A server that answers every call with its own body, until it has answered `breaks_after` and hangs up."""

    def __init__(self, breaks_after: int = 10**9) -> None:
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/echo"
        self._left = breaks_after
        self.start()

    def run(self) -> None:
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        with sock:
            while call := sock.recv(65536):
                self._left -= 1
                if self._left < 0:
                    return
                body = call.partition(b"\r\n\r\n")[2]
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listening.close()


@pytest.mark.parametrize(
    ("side", "value", "figure", "met"),
    [("at least", 8, 8, True), ("at least", 8, 7.9, False), ("at most", 4, 4.1, False), ("under", 400, 400, False)],
)
def test_a_bar_tells_what_reaches_it(side: str, value: float, figure: float, met: bool) -> None:
    assert Bar(side=side, value=value).met(figure) is met


def test_a_row_judges_the_median_of_the_rounds_ratios() -> None:
    row = ratio_row("a", "x", "y", [10, 30, 90], [10, 10, 10], unit="1/s", bar=Bar(side="at least", value=4))
    assert (row["ratio"], row["spread"], row["met"]) == (3, "1 .. 9", False)


def test_the_slope_of_a_noisy_line_is_within_its_interval() -> None:
    rng = np.random.default_rng(0)
    at = np.arange(200) / 100
    found = slope_of(at, 5.0 + 3.0 * at + rng.normal(0, 0.5, 200))
    assert found.low < 3.0 < found.high
    assert found.high - found.low < 1.0


def test_samples_that_resemble_their_neighbours_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    noise, walk = rng.normal(0, 1, 300), np.zeros(300)
    for i in range(1, 300):
        walk[i] = 0.9 * walk[i - 1] + noise[i]
    apart, alike = slope_of(np.arange(300), noise), slope_of(np.arange(300), walk * noise.std() / walk.std())
    assert alike.high - alike.low > 2 * (apart.high - apart.low)


def test_every_call_at_a_pace_is_answered_with_its_own_body(echo: Echo) -> None:
    answers: list[Answer] = []
    drive(echo.url, even(500, 0.4), lambda i: request(echo.url, b"call-%04d" % i), answers.append)
    assert sorted(answer.index for answer in answers) == list(range(200))
    assert all(answer.body == b"call-%04d" % answer.index and answer.status == 200 for answer in answers)


def test_a_call_that_waits_for_a_connection_is_charged_for_it(echo: Echo) -> None:
    answers: list[Answer] = []
    drive(echo.url, iter([0.0] * 50), lambda i: request(echo.url, b"x"), answers.append, connections=1)
    latencies = [answer.latency_s for answer in sorted(answers, key=lambda answer: answer.index)]
    assert len(latencies) == 50
    assert latencies == sorted(latencies)


def test_calls_whose_connection_ends_are_told_as_broken() -> None:
    server = Echo(breaks_after=5)
    answers: list[Answer] = []
    drive(server.url, even(200, 0.1), lambda i: request(server.url, b"x"), answers.append, connections=2)
    server.listening.close()
    assert len(answers) == 20
    assert sum(answer.status == BROKEN for answer in answers) == 15

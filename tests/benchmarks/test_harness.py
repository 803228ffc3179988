"""The harness itself: bars, slopes, and calls at a pace, against a server made for it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from tests.benchmarks.harness import Bar, amount_row, measure, parser_of, ratio_row, slope_of
from tests.benchmarks.serving.paced import Answer, drive, even, request


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
        with sock, suppress(ConnectionError):  # a caller that is done may reset
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
    row = ratio_row("x", "y", [10, 30, 90], [10, 10, 10], unit="1/s", bar=Bar(side="at least", value=4))
    assert (row["ratio"], row["spread"], row["met"]) == (3, "1 .. 9", False)


def test_chosen_parts_print_one_table_and_missed_bars(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar(side="under", value=2.0)
    parts = {name: partial(lambda what: [amount_row(what, [2.0], unit="s", bar=bar)], name) for name in "abc"}
    rows = measure(parts, parser_of("made", "Made.", parts).parse_args(["--only", "a,c", "--format", "csv"]))
    printed = capsys.readouterr()
    assert [(row["part"], row["met"]) for row in rows] == [("a", False), ("c", False)]
    assert len(printed.out.splitlines()) == 3
    assert "missed: a; c" in printed.err


def test_the_interval_of_a_slope_widens_if_samples_resemble_their_neighbours() -> None:
    rng = np.random.default_rng(1)
    at, noise, walk = np.arange(300.0), rng.normal(0, 1, 300), np.zeros(300)
    for i in range(1, 300):
        walk[i] = 0.9 * walk[i - 1] + noise[i]
    (_, low, high), alike = slope_of(at, 3.0 * at + noise), slope_of(at, walk * noise.std() / walk.std())
    assert low < 3.0 < high
    assert alike[2] - alike[1] > 2 * (high - low)


def test_every_call_at_a_pace_is_answered_with_its_own_body(echo: Echo) -> None:
    answers: list[Answer] = []
    drive(echo.url, even(500, 0.4), lambda i: request(echo.url, b"call-%04d" % i), answers.append)
    assert sorted(answer.index for answer in answers) == list(range(200))
    assert all(answer.body == b"call-%04d" % answer.index and answer.status == 200 for answer in answers)


def test_a_connection_that_ends_before_an_answer_ends_the_load() -> None:
    server = Echo(breaks_after=5)
    answers: list[Answer] = []
    with pytest.raises(ConnectionError, match="ended before call"):
        drive(server.url, even(200, 0.1), lambda i: request(server.url, b"x"), answers.append, connections=2)
    server.listening.close()
    assert len(answers) <= 5

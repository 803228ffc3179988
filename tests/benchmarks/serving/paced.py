"""Load at a steady pace, open loop: a call is due at its moment whether or not the ones before it were answered.

Latency counts from the moment a call was due, so a server that stalls is charged for every call it kept waiting; wrk
cannot do this. One thread that spins over eight connections is exact to tens of microseconds. Run as a process of its
own; prints a line of JSON for every window of time.
"""

import argparse
import gc
import json
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

PLACE: Final = b"@@job-id@@"
"""Stands for the id in the bodies that are given."""
CONNECTIONS: Final = 8
REST_S: Final = 0.001
"""Rest between two looks with ids: an hour of spinning would take a core from the service's other processes."""
STALL_LIMIT_S: Final = 30.0
"""How long the last calls are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of call number `index`: its status, body, and seconds since it was due."""

    index: int
    status: int
    body: bytes
    latency_s: float


@dataclass(slots=True)
class _Line:
    """One connection, and the call it carries."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    index: int = -1
    due: float = 0.0


def even(rate_per_s: float, seconds: float) -> Iterator[float]:
    """Give the moments of calls at equal distances."""
    yield from (number / rate_per_s for number in range(int(rate_per_s * seconds)))


def drive(
    url: str,
    moments: Iterator[float],
    call: Callable[[int], bytes],
    seen: Callable[[Answer], None],
    *,
    connections: int = CONNECTIONS,
    rest_s: float = 0.0,
) -> None:
    """Send call number i (a whole HTTP/1.1 request) at moment i, and pass every answer on.

    `rest_s` is how long the core may rest between two looks, and so how late a call may be; 0 spins.

    Raises
    ------
    OSError
        A connection ends before an answer, or the last answers do not come in time.
    """
    where = urlsplit(url)
    with ExitStack() as stack, select.epoll() as poll:
        lines = dict[int, _Line]()
        for _ in range(connections):
            sock = stack.enter_context(socket.create_connection((where.hostname or "127.0.0.1", where.port or 80)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(sock.fileno(), select.EPOLLIN)
            lines[sock.fileno()] = _Line(sock)
        free, waiting = deque(lines.values()), deque[tuple[int, float]]()
        upcoming = enumerate(moments)
        following = next(upcoming, None)
        start = last = time.perf_counter()
        while following is not None or waiting or len(free) < connections:
            now = time.perf_counter()
            while following is not None and start + following[1] <= now:
                waiting.append((following[0], start + following[1]))
                following, last = next(upcoming, None), now
            while waiting and free:
                line = free.popleft()
                line.index, line.due = waiting.popleft()
                line.sock.send(call(line.index))
            for number, _ in poll.poll(rest_s):
                line = lines[number]
                if (answer := _received(line)) is not None:
                    status, body = answer
                    seen(Answer(index=line.index, status=status, body=body, latency_s=time.perf_counter() - line.due))
                    free.append(line)
            if now - last > STALL_LIMIT_S:
                unanswered = len(waiting) + connections - len(free)
                raise TimeoutError(f"{unanswered} calls unanswered after {STALL_LIMIT_S:g} s")


def request(url: str, body: bytes) -> bytes:
    """Return a POST as it goes over the wire."""
    where = urlsplit(url)
    head = f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _received(line: _Line) -> tuple[int, bytes] | None:
    """Read what there is; return the status and body once they are whole."""
    data = line.sock.recv(1 << 18)
    if not data:
        raise ConnectionError(f"the connection ended before call {line.index} was answered")
    line.received += data
    head = line.received.find(b"\r\n\r\n")
    if head < 0:
        return None
    at = line.received.lower().find(b"content-length:", 0, head)
    length = int(line.received[at + 15 : line.received.find(b"\r\n", at)])
    if len(line.received) < head + 4 + length:
        return None
    status, body = int(line.received[9:12]), bytes(line.received[head + 4 :])
    line.received.clear()
    return status, body


@dataclass(slots=True)
class Window:
    """The answers since the last line was printed."""

    latencies_s: list[float] = field(default_factory=list)
    models: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def add(self, answer: Answer, *, ids: bool) -> None:
        """Count an answer; one that is not right is a complaint."""
        self.latencies_s.append(answer.latency_s)
        wrong, model = judged(answer, ids=ids)
        if model is not None:
            self.models[model] += 1
        if wrong is not None:
            self.complaints.append(f"{job_id(answer.index)}: {wrong}: {answer.body[:200]!r}")

    def line(self) -> str:
        quantiles = np.quantile(self.latencies_s, [0.5, 0.99, 1.0]) * 1e3
        latencies = dict(zip(("p50_ms", "p99_ms", "max_ms"), quantiles, strict=True))
        counts = {"answers": len(self.latencies_s), "wrong": len(self.complaints), "models": dict(self.models)}
        return json.dumps({**counts, **latencies, "complaints": self.complaints[:5]})


def job_id(index: int) -> str:
    """Return the id of call number `index`."""
    return f"soak-{index:09d}"


def judged(answer: Answer, *, ids: bool) -> tuple[str | None, str | None]:
    """Return what is wrong with an answer, and with `ids` the model that it cites."""
    if answer.status != 200:
        return f"status {answer.status}", None
    if not ids:
        return None, None
    predictions = json.loads(answer.body)["predictions"]
    if [row["job_id"] for row in predictions] != [job_id(answer.index)]:
        return "wrong id", None
    if predictions[0]["run_time_s"] is None:
        return "unanswered", None
    return None, predictions[0]["models"]["run_time"]


def main() -> None:
    """Send bodies from a file at a pace, and print each window as it closes."""
    parser = argparse.ArgumentParser(description="send calls at a steady pace")
    parser.add_argument("url")
    parser.add_argument("--bodies", type=Path, required=True, help="file, one a line")
    parser.add_argument("--rate", type=float, required=True, help="calls per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--window", type=float, help="seconds per output line (default: all)")
    parser.add_argument("--ids", action="store_true", help="give each call an id of its own, which must come back")
    options = parser.parse_args()
    same = job_id(0).encode()
    bodies = options.bodies.read_bytes().replace(PLACE, same).splitlines()
    halves = [request(options.url, body).split(same) for body in bodies]
    window, size = Window(), int(options.rate * (options.window or options.seconds))

    def call(index: int) -> bytes:
        return job_id(index).encode().join(halves[index % len(halves)])

    def seen(answer: Answer) -> None:
        nonlocal window
        window.add(answer, ids=options.ids)
        if len(window.latencies_s) >= size:
            print(window.line(), flush=True)
            window = Window()

    gc.disable()
    rest_s = REST_S if options.ids else 0.0
    drive(options.url, even(options.rate, options.seconds), call, seen, rest_s=rest_s)
    if window.latencies_s:
        print(window.line(), flush=True)


if __name__ == "__main__":
    main()

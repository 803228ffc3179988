"""Load at a steady pace, open loop: a call is due at its moment whether or not the ones before it were answered.

Latency counts from the moment a call was due, so a server that stalls is charged for every call it kept waiting. wrk
cannot do this (its calls wait for answers, and its delays are whole milliseconds), and wrk2 is in no Debian; one thread
that spins over eight connections is exact to tens of microseconds, at a small part of what wrk can send.
Run as a process of its own by `tests.benchmarks.serving.latency`; the soak drives it with calls of its own.
"""

import argparse
import gc
import json
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

CONNECTIONS: Final = 8
STALL_LIMIT_S: Final = 30.0
"""How long the last calls are waited for; what is then unanswered counts as broken."""
BROKEN: Final = 0
"""The status of a call whose connection ended or stalled before the answer."""


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


def random(rate_per_s: float, seconds: float, seed: int = 0) -> Iterator[float]:
    """Give the moments of calls that know nothing of each other (a Poisson process)."""
    gaps = np.random.default_rng(seed).exponential(1.0 / rate_per_s, int(rate_per_s * seconds))
    yield from np.cumsum(gaps).tolist()


def drive(
    url: str,
    moments: Iterator[float],
    call: Callable[[int], bytes],
    seen: Callable[[Answer], None],
    *,
    connections: int = CONNECTIONS,
    rest_s: float = 0.0,
) -> None:
    """Send call number i (a whole HTTP/1.1 request) at moment i, and tell of every answer.

    `rest_s` is how long the core may rest between two looks, and so how late a call may be; 0 spins.
    """
    where = urlsplit(url)
    address = (where.hostname or "127.0.0.1", where.port or 80)
    poll = select.epoll()
    lines: dict[int, _Line] = {}
    free: deque[_Line] = deque(_opened(poll, lines, address) for _ in range(connections))
    waiting: deque[tuple[int, float]] = deque()
    upcoming = enumerate(moments)
    following = next(upcoming, None)
    start = time.perf_counter()
    last = start
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
            status, body = _received(line)
            if status is None:
                continue
            seen(Answer(index=line.index, status=status, body=body, latency_s=time.perf_counter() - line.due))
            free.append(line if status != BROKEN else _again(poll, lines, line, address))
        if now - last > STALL_LIMIT_S:
            carried = [(line.index, line.due) for line in lines.values() if line not in free]
            for index, due in [*carried, *waiting]:
                seen(Answer(index=index, status=BROKEN, body=b"", latency_s=now - due))
            break
    for line in lines.values():
        line.sock.close()
    poll.close()


def request(url: str, body: bytes, headers: str = "") -> bytes:
    """Return a POST as it goes over the wire."""
    where = urlsplit(url)
    head = f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _opened(poll: select.epoll, lines: dict[int, _Line], address: tuple[str, int]) -> _Line:
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    poll.register(sock.fileno(), select.EPOLLIN)
    lines[sock.fileno()] = _Line(sock)
    return lines[sock.fileno()]


def _again(poll: select.epoll, lines: dict[int, _Line], line: _Line, address: tuple[str, int]) -> _Line:
    poll.unregister(line.sock.fileno())
    del lines[line.sock.fileno()]
    line.sock.close()
    return _opened(poll, lines, address)


def _received(line: _Line) -> tuple[int | None, bytes]:
    """Read what there is; return the status and body once they are whole."""
    try:
        data = line.sock.recv(1 << 18)
    except OSError:
        data = b""
    if not data:
        return BROKEN, b""
    line.received += data
    head = line.received.find(b"\r\n\r\n")
    if head < 0:
        return None, b""
    at = line.received.lower().find(b"content-length:", 0, head)
    length = int(line.received[at + 15 : line.received.find(b"\r\n", at)])
    if len(line.received) < head + 4 + length:
        return None, b""
    status, body = int(line.received[9:12]), bytes(line.received[head + 4 :])
    line.received.clear()
    return status, body


def main() -> None:
    """Send bodies from a file at a pace, and print the latencies' quantiles as JSON."""
    parser = argparse.ArgumentParser(description="send calls at a steady pace")
    parser.add_argument("url")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--rate", type=float, required=True, help="calls per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--moments", choices=("even", "random"), default="even")
    asked = parser.parse_args()
    calls = [request(asked.url, body) for body in asked.bodies.read_bytes().splitlines()]
    answers: list[Answer] = []
    gc.disable()
    moments = even if asked.moments == "even" else random
    drive(asked.url, moments(asked.rate, asked.seconds), lambda i: calls[i % len(calls)], answers.append)
    latencies = np.array([answer.latency_s for answer in answers]) * 1e3
    p50, p99, p999 = np.quantile(latencies, [0.5, 0.99, 0.999])
    refused = sum(answer.status != 200 for answer in answers)
    print(json.dumps({"calls": len(answers), "refused": refused, "p50_ms": p50, "p99_ms": p99, "p999_ms": p999}))


if __name__ == "__main__":
    main()

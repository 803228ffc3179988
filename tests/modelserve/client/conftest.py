"""A service that does what its script says, over real sockets, and a time that passes only when somebody waits."""

import json
import math
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from modelserve.client import Client
from modelserve.client.exchange import Exchange, Surroundings
from modelserve.client.policy import Retries, Timeouts
from scheduler_core.types import Job, Request
from tests.modelserve.client.services import Answer, Service, serving

Act = Callable[[Service, socket.socket], None]
LONGEST_S = 20.0


def reply(status: int = 200, content: object = None, **headers: str) -> Act:
    """Answer as a service does."""
    body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()

    def act(_service: Service, connection: socket.socket) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return act


def half(_service: Service, connection: socket.socket) -> None:
    """Promise a hundred bytes, send ten, and go."""
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"predicti')


def reset(_service: Service, connection: socket.socket) -> None:
    """Break the connection off instead of answering."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang(service: Service, _connection: socket.socket) -> None:
    """Say nothing for as long as the test lasts."""
    service.over.wait(LONGEST_S)


def trickle(service: Service, connection: socket.socket) -> None:
    """Send a header without end, a byte at a time: no read ever waits long."""
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        while not service.over.wait(0.01):
            connection.sendall(b"y")


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Return a maker of services, all ended with the test; each call takes the next act, then the last one again."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(serving(*map(_answer, script)))


def _answer(act: Act) -> Answer:
    return lambda connection, _, service: act(service, connection)


@dataclass(kw_only=True)
class Time:
    """A clock that stands still until somebody sleeps."""

    at: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


@pytest.fixture
def passing() -> Time:
    return Time()


@pytest.fixture
def surroundings(passing: Time) -> Surroundings:
    return Surroundings(
        clock=passing.clock,
        sleep=passing.sleep,
        now=lambda: datetime(2026, 11, 20, 12, tzinfo=UTC),
        rng=random.Random(1),
    )


@pytest.fixture
def exchange_of(surroundings: Surroundings) -> Callable[..., Exchange]:
    def make(*addresses: str, transport: object = None, token: str | None = None, **limits: float) -> Exchange:
        return Exchange(
            addresses,
            token=token,
            ca_file=None,
            verify=True,
            timeouts=Timeouts(**limits),
            retries=Retries(),
            surroundings=surroundings,
            transport=transport,
        )

    return make


@pytest.fixture
def client_of(surroundings: Surroundings) -> Callable[..., Client]:
    return lambda *addresses, **options: Client(*addresses, surroundings=surroundings, **options)


def job(name: str = "a", **changes: object) -> Job:
    asked = Request(cpu_cores=6.0, mem_gib=29.0, gpus=math.nan)
    return Job(**{"job_id": name, "trace": "pai", "task_type": "ctr", "request": asked, **changes})


def rows(count: int) -> list[dict[str, object]]:
    return [{"job_id": f"j{i}", "task_type": "ctr", "request": {"cpu_cores": 4.0}} for i in range(count)]


def recommending(change: Callable[[dict[str, object]], None] = lambda said: None) -> Act:
    """Answer as the service would that halves every request; `change` spoils the answer before it is sent."""

    def act(service: Service, connection: socket.socket) -> None:
        jobs = json.loads(service.seen[-1][2])["jobs"]
        said: dict[str, object] = {"answer_id": f"a-{len(service.seen)}", "recommendations": [halved(j) for j in jobs]}
        change(said)
        reply(200, said)(service, connection)

    return act


def halved(job: dict[str, object]) -> dict[str, object]:
    asked = {name: job["request"].get(name) for name in ("cpu_cores", "mem_gib", "gpus")}
    return {
        "job_id": job["job_id"],
        "mode": "enforce",
        "request": asked,
        "target": {name: value and value / 2 for name, value in asked.items()},
        "lower_bound": {"cpu_cores": None, "mem_gib": 1.0, "gpus": None},
        "run_time_s": {"p50": 60.0, "p90": 90.0},
        "run_time_change": 0.01,
        "reasons": {name: None if value is None else "shrunk" for name, value in asked.items()},
        "alpha": 0.5,
        "model_decided": True,
        "models": {"run_time": "runtime.pai.ctr@7", "usage": "usage.pai.ctr@5"},
        "history": "2026-11-20T03:00:00Z",
        "measured_runs": 12,
        "evidence": {"measured_runs": 12, "history_age_s": 60.0},
        "note": None,
        "said_by_a_later_version": 1,
    }

"""A service that does what its script says, over real sockets, and a time that passes only when somebody waits."""

import json
import math
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from modelserve.client import Client
from modelserve.client.exchange import Exchange, Surroundings
from modelserve.client.policy import Retries, Timeouts
from scheduler_core.types import Job, Request
from tests.modelserve.client.services import Answer, Row, Service, http, replying, rows_of, serving


def reply(status: int = 200, content: object = None, **headers: str) -> Answer:
    """Answer as a service does."""
    body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()
    return replying(http(body, f"{status} Said", connection="close", **headers))


def half(connection: socket.socket, _body: Row, _service: Service) -> None:
    """Promise a hundred bytes, send ten, and go."""
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"predicti')


def reset(connection: socket.socket, _body: Row, _service: Service) -> None:
    """Break the connection off instead of answering."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Return a maker of services, all ended with the test; each call takes the next answer, then the last one again."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(serving(*script))


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


def recommending(change: Callable[[Row], None] = lambda said: None) -> Answer:
    """Answer as the service would; `change` spoils the answer before it is sent."""

    def act(connection: socket.socket, body: Row, service: Service) -> None:
        said: Row = {"answer_id": f"a-{len(service.seen)}", "recommendations": rows_of(body)}
        change(said)
        reply(200, said)(connection, body, service)

    return act

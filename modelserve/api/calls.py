"""The state of one HTTP call, and the objects that all calls of a worker share: tokens, rates, slots, metrics.

The gate creates a `Call`; its route gets it with `call_of`.
"""

import asyncio
import itertools
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope

from modelserve.api.metrics import Metrics
from modelserve.api.problems import Refusal
from modelserve.callers import Caller
from modelserve.scopes import Scope as TokenScope
from modelserve.service import Service
from modelserve.settings import ServeSettings

Answer = TypeVar("Answer")

THREADS: Final = 4
"""Number of a worker's threads for large calls; two cores stay busy while some threads wait for the store."""


class Slots:
    """The thread pool of a worker, with a limit on the calls that run in it or wait for it (one slot each)."""

    def __init__(self, *, limit: int, answer_limit_s: float) -> None:
        self._limit, self._answer_limit_s = limit, answer_limit_s
        self._taken, self._counting = 0, threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="answer")

    @property
    def taken(self) -> int:
        """Number of calls that run or wait for a thread."""
        return self._taken

    async def run(self, ask: Callable[[], Answer]) -> Answer:
        """Run `ask` in a thread and return its result.

        A call keeps its slot until `ask` has ended, even after the call timed out.
        """
        if self._taken >= self._limit:
            raise Refusal(503, f"{self._taken} large calls in progress, expected fewer than {self._limit}; try again")
        with self._counting:
            self._taken += 1
        work = self._threads.submit(ask)
        work.add_done_callback(self._release)
        waiting = asyncio.wrap_future(work)
        done, _ = await asyncio.wait((waiting,), timeout=self._answer_limit_s)
        if not done:
            waiting.cancel()
            raise Refusal(503, f"no answer within {self._answer_limit_s:g} s; send fewer jobs, or try again")
        return waiting.result()

    def close(self) -> None:
        """Cancel waiting calls and accept no further ones; running calls go on."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release(self, _: Future[Answer]) -> None:
        with self._counting:  # runs in a thread of the pool
            self._taken -= 1


BURST_S: Final = 1.0
"""Capacity of a token bucket, in seconds of the call rate: the burst that an idle caller may send at once."""


MOST_BUCKETS: Final = 10_000
"""Maximum number of token buckets; those unused for longest are dropped first."""
UNKNOWN_PER_S: Final = 10.0
"""Calls per second and address without a known token that get 401; further calls get 429."""


class Rates:
    """Rate limits of one worker: a token bucket for each caller, or for each address of calls without a token."""

    def __init__(self, calls_per_s: float | None, *, clock: Callable[[], float]) -> None:
        self._calls_per_s, self._clock = calls_per_s, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Count a call of the caller `name`."""
        rate = self._calls_per_s
        if rate is None:
            return
        room = max(1.0, rate * BURST_S)
        now_s = self._clock()
        left, at_s = self._buckets.pop(name, (room, now_s))
        if len(self._buckets) >= MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        left = min(room, left + max(0.0, now_s - at_s) * rate)
        if left < 1.0:
            self._buckets[name] = (left, now_s)
            wait_s = max(1, math.ceil((1.0 - left) / rate))
            raise Refusal(
                429, f"more than {rate:g} calls a second; wait {wait_s} s", headers={"retry-after": str(wait_s)}
            )
        self._buckets[name] = (left - 1.0, now_s)


KEY: Final = "taut.call"
"""Key under which the ASGI scope of a request holds its `Call`."""

_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def new_ids() -> Iterator[str]:
    """Yield ids for calls, unique across workers and restarts: a random prefix and a count."""
    prefix = secrets.token_hex(8)
    return (f"{prefix}-{number}" for number in itertools.count(1))


@dataclass(slots=True, kw_only=True)
class Desk:
    """Objects of a worker that all its calls share; `held_bytes` is the size of the large request bodies in memory."""

    service: Service
    rates: Rates
    unknown: Rates
    slots: Slots
    metrics: Metrics
    ids: Iterator[str] = field(default_factory=new_ids)
    held_bytes: int = 0

    @property
    def settings(self) -> ServeSettings:
        """The settings of the service."""
        return self.service.settings


class Call:
    """One HTTP call: its ids, its caller once its token is checked, and the values of its log line."""

    __slots__ = (
        "address", "answer_id", "body", "caller", "desk", "headers", "held_bytes", "method", "models", "path",
        "receive", "request_id", "route", "rows", "started_s", "status",
    )  # fmt: skip

    def __init__(self, desk: Desk, scope: Scope, receive: Receive) -> None:
        self.desk, self.receive = desk, receive
        self.method: str = scope["method"]
        self.address = (scope.get("client") or ("",))[0]
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.answer_id = secrets.token_hex(8)  # not to be guessed from another id: the report of a job names it
        given = self.headers.get(b"x-request-id")
        sane = given is not None and _SANE_ID.fullmatch(given)
        self.request_id = given.decode() if sane and given is not None else next(desk.ids)
        self.caller: Caller | None = None
        self.body = b""
        self.held_bytes = 0
        self.route = ""
        self.models: tuple[str, ...] = ()
        self.rows = 0
        self.status = 0
        self.started_s = time.perf_counter()

    def hold(self, size_bytes: int, limit_bytes: int) -> None:
        """Record how many bytes of the request body are in memory; `release` sets the number back to 0."""
        self.desk.held_bytes += size_bytes - self.held_bytes
        self.held_bytes = size_bytes
        if self.desk.held_bytes > limit_bytes:
            raise Refusal(
                503, f"bodies of {self.desk.held_bytes} bytes in memory, expected at most {limit_bytes}; try again"
            )

    def release(self) -> None:
        """Subtract this call's body from the total of bodies in memory."""
        if self.held_bytes:
            self.desk.held_bytes -= self.held_bytes
            self.held_bytes = 0

    def allowed(self, scope: TokenScope) -> Caller:
        """Return the caller if its token has the scope."""
        if self.caller is None:
            raise RuntimeError(f"{self.path}: found no caller, expected the gate to have checked one")
        self.caller.check_scope(scope)
        return self.caller


def call_of(request: Request) -> Call:
    """Return the `Call` that the gate created for a request."""
    call: Call = request.scope[KEY]
    return call

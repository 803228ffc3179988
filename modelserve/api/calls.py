"""One call while it is processed, and what all calls of a worker share: tokens, rates, slots, metrics.

Nothing is answered here. Made by the gate; the routes find their call by `call_of`.
"""

import asyncio
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope

from modelserve import callers
from modelserve.api.metrics import Metrics
from modelserve.api.problems import Refusal
from modelserve.callers import Caller, Tokens
from modelserve.service import Service
from modelserve.settings import ServeSettings

Answer = TypeVar("Answer")

THREADS: Final = 4
"""Number of threads: enough to keep two cores busy while others wait for the store."""


class Slots:
    """A worker's threads, and the bound on calls that run or wait for them."""

    def __init__(self, *, limit: int, answer_limit_s: float) -> None:
        self._limit, self._answer_limit_s = limit, answer_limit_s
        self._taken, self._counting = 0, threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="answer")

    @property
    def taken(self) -> int:
        """Number of calls that run or wait."""
        return self._taken

    async def run(self, ask: Callable[[], Answer]) -> Answer:
        """Run `ask` in a thread and return its result.

        A slot is free again when the work has ended; after a timeout that is later than the refusal.

        Raises
        ------
        Refusal
            No slot is free, or the answer takes too long (503).
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
        """Start no further call."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release(self, _: Future[Answer]) -> None:
        with self._counting:  # called in the worker thread
            self._taken -= 1


BURST_S: Final = 1.0
"""Length of a burst: unused calls of this long are kept."""


class Rates:
    """The token buckets of one worker, by caller; names come from the settings, so their number is bounded."""

    def __init__(self, calls_per_s: float | None, *, clock: Callable[[], float]) -> None:
        self._calls_per_s, self._clock = calls_per_s, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Count a call of `name`.

        Raises
        ------
        Refusal
            The caller exceeds its rate (429).
        """
        rate = self._calls_per_s
        if rate is None:
            return
        room = max(1.0, rate * BURST_S)
        now_s = self._clock()
        left, at_s = self._buckets.get(name, (room, now_s))
        left = min(room, left + max(0.0, now_s - at_s) * rate)
        if left < 1.0:
            self._buckets[name] = (left, now_s)
            wait_s = max(1, math.ceil((1.0 - left) / rate))
            raise Refusal(
                429, f"more than {rate:g} calls a second; wait {wait_s} s", headers={"retry-after": str(wait_s)}
            )
        self._buckets[name] = (left - 1.0, now_s)


KEY: Final = "taut.call"
"""The key of a call in its ASGI scope."""

_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SANE_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Ids:
    """Ids of calls and answers, unique over workers and restarts: a random prefix, then a count."""

    def __init__(self) -> None:
        self._prefix, self._count = secrets.token_hex(8), 0

    def next(self) -> str:
        """Return a new id."""
        self._count += 1
        return f"{self._prefix}-{self._count}"


class Held:
    """The total size of all bodies in memory, small ones not counted."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Add to the total; call on the event loop only."""
        self.size_bytes += size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The parts that every call uses."""

    service: Service
    tokens: Tokens
    rates: Rates
    slots: Slots
    metrics: Metrics
    ids: Ids
    held: Held

    @property
    def settings(self) -> ServeSettings:
        """The settings of the service."""
        return self.service.settings


class Call:
    """One call: its ids, its caller once admitted, and the values of its log line."""

    __slots__ = (
        "answer_id", "body", "caller", "desk", "headers", "held_bytes", "method", "models", "path", "receive",
        "request_id", "route", "rows", "started_s", "status",
    )  # fmt: skip

    def __init__(self, desk: Desk, scope: Scope, receive: Receive) -> None:
        self.desk, self.receive = desk, receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.answer_id = desk.ids.next()
        given = self.headers.get(b"x-request-id")
        sane = given is not None and _SANE_ID.fullmatch(given)
        self.request_id = given.decode() if sane and given is not None else self.answer_id
        self.caller: Caller | None = None
        self.body = b""
        self.held_bytes = 0
        self.route = ""
        self.models: tuple[str, ...] = ()
        self.rows = 0
        self.status = 0
        self.started_s = time.perf_counter()

    def hold(self, size_bytes: int, limit_bytes: int) -> None:
        """Record the current size of the body; `release` frees it.

        Raises
        ------
        Refusal
            All calls together hold more than the limit (503).
        """
        self.desk.held.add(size_bytes - self.held_bytes)
        self.held_bytes = size_bytes
        if self.desk.held.size_bytes > limit_bytes:
            raise Refusal(
                503, f"bodies of {self.desk.held.size_bytes} bytes in memory, expected at most {limit_bytes}; try again"
            )

    def release(self) -> None:
        """Free the size of the body."""
        if self.held_bytes:
            self.desk.held.add(-self.held_bytes)
            self.held_bytes = 0

    @property
    def service(self) -> Service:
        """The service that answers."""
        return self.desk.service

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the caller sent, or None if it is invalid."""
        found = self.headers.get(b"traceparent")
        return found.decode() if found is not None and _SANE_TRACEPARENT.fullmatch(found) else None

    def allowed(self, scope: callers.Scope) -> Caller:
        """Return the caller if its token has the scope.

        Raises
        ------
        Forbidden
            The token lacks it.
        """
        if self.caller is None:
            raise RuntimeError(f"{self.path}: asked for a scope before anybody was admitted")
        self.caller.check_scope(scope)
        return self.caller


def call_of(request: Request) -> Call:
    """Return the call that a request belongs to."""
    call: Call = request.scope[KEY]
    return call

"""A call under way: who calls, what for, and what is counted and logged when it ends.

Nothing is answered here. Made by the gate, found by the routes through `call_of`.
"""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.types import Receive, Scope

from modelserve import callers
from modelserve.api.problems import Refusal
from modelserve.callers import Caller
from modelserve.service import Service
from modelserve.settings import ServeSettings
from modelserve.tokens import Tokens

if TYPE_CHECKING:
    from modelserve.api.access_log import AccessLog
    from modelserve.api.metrics import Metrics
    from modelserve.api.rates import Rates
    from modelserve.api.slots import Slots

KEY: Final = "taut.call"
"""Where a call is found in its ASGI scope."""

_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SANE_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Ids:
    """Names for calls and answers, unique over workers and restarts: a random prefix, then a count."""

    def __init__(self) -> None:
        self._prefix, self._count = secrets.token_hex(8), 0

    def next(self) -> str:
        """Return a name that was never given before."""
        self._count += 1
        return f"{self._prefix}-{self._count}"


class Held:
    """What the bodies of all calls under way weigh, from the first that is no small one."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Add to it; called on the event loop only."""
        self.size_bytes += size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What every call finds at hand."""

    service: Service
    tokens: Tokens
    rates: "Rates"
    slots: "Slots"
    metrics: "Metrics"
    log: "AccessLog"
    ids: Ids
    held: Held

    @property
    def settings(self) -> ServeSettings:
        """The settings of the service."""
        return self.service.settings


class Call:
    """One call: its names, its caller once admitted, and what its end will be logged with."""

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
        """Say how large the body has grown; `release` gives it back.

        Raises
        ------
        Refusal
            All calls together hold more than the limit (503).
        """
        self.desk.held.add(size_bytes - self.held_bytes)
        self.held_bytes = size_bytes
        if self.desk.held.size_bytes > limit_bytes:
            raise Refusal(
                503, f"bodies of {self.desk.held.size_bytes} bytes at work, expected at most {limit_bytes}; try again"
            )

    def release(self) -> None:
        """Say that the body is done with."""
        if self.held_bytes:
            self.desk.held.add(-self.held_bytes)
            self.held_bytes = 0

    @property
    def service(self) -> Service:
        """The service that answers."""
        return self.desk.service

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the caller sent, where it is one."""
        found = self.headers.get(b"traceparent")
        return found.decode() if found is not None and _SANE_TRACEPARENT.fullmatch(found) else None

    def allowed(self, scope: callers.Scope) -> Caller:
        """Return who calls, once it is known that the token has the scope.

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

"""One client's connection: how long and how large a request head may be, how long an answer may lie unread.

What a request means is the application's business, and so is its body; uvicorn's protocol does the talking. Made by
`modelserve.server.draining.DrainingServer`, which sweeps all of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
    from uvicorn.server import ServerState

HEAD_LIMIT_BYTES: Final = 65_536
"""Largest request line and headers; httptools itself would take any."""

SETTLED_S: Final = 1.0
"""A connection that has waited this long for a request may have to go when all places are taken."""

RETRY_AFTER_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one connection may hold; times in seconds."""

    head_s: float
    body_s: float
    unread_s: float
    connections: int


class BoundedConfig(uvicorn.Config):
    """Uvicorn's configuration and the limits of its connections."""

    def __init__(self, app: Any, *, limits: Limits, **given: Any) -> None:  # Any: as uvicorn.Config takes them
        super().__init__(app, http=Connection, **given)
        self.limits = limits


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol with an end to waiting.

    `waits_since` is when it began to wait for a request head (on the event loop's clock), None while one is answered.
    """

    def __init__(
        self,
        config: BoundedConfig,
        server_state: "ServerState",
        app_state: dict[str, Any],  # Any: as in uvicorn
        _loop: "asyncio.AbstractEventLoop | None" = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = config.limits
        self.waits_since: float | None = None
        self._head_bytes = 0
        self.in_body = False
        self.lingers = False
        self._unsent_bytes = 0
        self._unsent_since = 0.0

    def connection_made(self, transport: "asyncio.Transport") -> None:  # type: ignore[override]  # as in uvicorn
        """Take the connection if there is a place, or if one can be made; else its request is answered with 503."""
        taken = len(self.connections)
        super().connection_made(cast("asyncio.Transport", Lingering(transport, self)))
        self.waits_since = self.loop.time()
        crowded = taken >= 2 * self.limits.connections
        room = taken < self.limits.connections or self._made_room(settled_s=0.0 if crowded else SETTLED_S)
        if not room and crowded:
            transport.abort()
        elif not room or crowded:
            self.app = overloaded

    def _made_room(self, *, settled_s: float) -> bool:
        """Close the connection that has waited longest for a request: half-open or idle, it is the least missed."""
        waiting = (each for each in self.connections if isinstance(each, Connection) and each._may_go(settled_s))
        longest = min(waiting, key=lambda each: each.waits_since or 0.0, default=None)
        if longest is None:
            return False
        longest.transport.abort()
        self.connections.discard(longest)
        return True

    def _may_go(self, settled_s: float) -> bool:
        settled = self.waits_since is not None and self.loop.time() - self.waits_since > settled_s
        return settled and not self.in_body and self.transport.get_write_buffer_size() == 0

    def data_received(self, data: bytes) -> None:
        """Count what comes while a request head is awaited, and refuse one without end."""
        if self.waits_since is not None and not self.in_body:
            if self._head_bytes == 0:
                self.waits_since = self.loop.time()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_LIMIT_BYTES and self.waits_since is not None:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected a head of {HEAD_LIMIT_BYTES} bytes")

    def on_headers_complete(self) -> None:
        """Stop to wait: a request is there."""
        self.waits_since = None
        self._head_bytes = 0
        self.in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request's body is over; a connection that only waited for that is closed."""
        self.in_body = False
        super().on_message_complete()
        if self.lingers:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless one was sent along with the last."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waits_since = self.loop.time()

    def shutdown(self) -> None:
        """Close an idle connection when the server ends, and have one at work closed after its answer."""
        if self.lingers:
            self.transport.abort()
        super().shutdown()

    def sweep(self, now: float) -> None:
        """End the connection if its client has kept it waiting for too long."""
        self._sweep_unsent(now)
        if self.waits_since is None or self.transport.is_closing():
            return
        waited_s = now - self.waits_since
        if self.in_body:  # answered before its body was over, as 413 is: the rest is read and dropped, for a while
            if waited_s > self.limits.body_s:
                self.transport.abort()
        elif self._head_bytes and waited_s > self.limits.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"expected a request within {self.limits.head_s:g} s")
        elif self.cycle is None and waited_s > self.limits.head_s:
            self.transport.abort()

    def _sweep_unsent(self, now: float) -> None:
        """Drop an answer of which the client has read nothing for too long."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent, now
        elif now - self._unsent_since > self.limits.unread_s:
            self.transport.abort()

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        if self.transport.is_closing():
            return
        body = problem(status, detail)
        head = {**PROBLEM_HEADERS, b"content-length": str(len(body)).encode()}
        lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), *(b"%s: %s" % each for each in head.items())]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()


class Lingering:
    """A transport that is not closed while a request body arrives whose answer was sent early, as 413 is.

    Closed at once, with bytes unread, the system would reset the connection, and the client lose the answer. What comes
    is read and dropped until the body is over, for as long as `Connection.sweep` bears with it.
    """

    def __init__(self, transport: "asyncio.Transport", connection: Connection) -> None:
        self._transport, self._connection = transport, connection
        # Looked up once: these are called for every answer.
        self.write, self.is_closing = transport.write, transport.is_closing
        self.abort, self.get_extra_info = transport.abort, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size

    def close(self) -> None:
        """Close the connection, or have it closed when the body is over."""
        if self._connection.in_body:
            self._connection.lingers = True
        else:
            self._transport.close()


PROBLEM_HEADERS: Final[Mapping[bytes, bytes]] = {b"content-type": b"application/problem+json", b"connection": b"close"}


def problem(status: HTTPStatus, detail: str) -> bytes:
    """Return the body of an error in the service's shape (RFC 9457)."""
    return json.dumps({"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}).encode()


async def overloaded(_scope: "Scope", _receive: "ASGIReceiveCallable", send: "ASGISendCallable") -> None:
    """Answer a request that came over a connection too many."""
    body = problem(HTTPStatus.SERVICE_UNAVAILABLE, f"too many connections; try again in {RETRY_AFTER_S} s")
    length, retry = str(len(body)).encode(), str(RETRY_AFTER_S).encode()
    headers = [*PROBLEM_HEADERS.items(), (b"content-length", length), (b"retry-after", retry)]
    await send({"type": "http.response.start", "status": int(HTTPStatus.SERVICE_UNAVAILABLE), "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})

"""One client's connection: bounds on time and size of request heads, and on the time an answer may stay unread.

Bodies are bounded by the application; HTTP is parsed by uvicorn's protocol. Made and swept by
`modelserve.server.draining.DrainingServer`.
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
"""Largest request line and headers; httptools itself has no limit."""

SETTLED_S: Final = 1.0
"""A connection idle for this long may be closed when all places are taken."""

RETRY_AFTER_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one connection; times in seconds."""

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
    """Uvicorn's protocol with time limits.

    `waits_since` is the time since when it waits for a request head (event loop's clock), None while one is answered.
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
        """Take the connection if there is a place or an idle one can be closed; otherwise answer with 503."""
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
        """Close the connection that has waited longest for a request."""
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
        """Count the bytes of a request head, and refuse one that is too long."""
        if self.waits_since is not None and not self.in_body:
            if self._head_bytes == 0:
                self.waits_since = self.loop.time()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_LIMIT_BYTES and self.waits_since is not None:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected a head of {HEAD_LIMIT_BYTES} bytes")

    def on_headers_complete(self) -> None:
        """Note that the request head is complete."""
        self.waits_since = None
        self._head_bytes = 0
        self.in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request's body is complete; close a connection that only waited for that."""
        self.in_body = False
        super().on_message_complete()
        if self.lingers:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it was sent together with the last one."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waits_since = self.loop.time()

    def shutdown(self) -> None:
        """Close an idle connection when the server ends, and a busy one after its answer."""
        if self.lingers:
            self.transport.abort()
        super().shutdown()

    def sweep(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        self._sweep_unsent(now)
        if self.waits_since is None or self.transport.is_closing():
            return
        waited_s = now - self.waits_since
        if self.in_body:  # answered before its body ended, as 413 is: read and drop the rest for a while
            if waited_s > self.limits.body_s:
                self.transport.abort()
        elif self._head_bytes and waited_s > self.limits.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"expected a request within {self.limits.head_s:g} s")
        elif self.cycle is None and waited_s > self.limits.head_s:
            self.transport.abort()

    def _sweep_unsent(self, now: float) -> None:
        """Close the connection if the client has read nothing of an answer for too long."""
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
    """A transport that stays open while the body of an early answered request (413) still arrives.

    If it were closed with bytes unread, the system would reset the connection and the client would lose the answer. The
    rest is read and dropped until the body ends or `Connection.sweep` closes the connection.
    """

    def __init__(self, transport: "asyncio.Transport", connection: Connection) -> None:
        self._transport, self._connection = transport, connection
        # Looked up once, since these are called for every answer.
        self.write, self.is_closing = transport.write, transport.is_closing
        self.abort, self.get_extra_info = transport.abort, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size

    def close(self) -> None:
        """Close the connection, now or when the body ends."""
        if self._connection.in_body:
            self._connection.lingers = True
        else:
            self._transport.close()


PROBLEM_HEADERS: Final[Mapping[bytes, bytes]] = {b"content-type": b"application/problem+json", b"connection": b"close"}


def problem(status: HTTPStatus, detail: str) -> bytes:
    """Return the body of an error in the service's shape (RFC 9457)."""
    return json.dumps({"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}).encode()


async def overloaded(_scope: "Scope", _receive: "ASGIReceiveCallable", send: "ASGISendCallable") -> None:
    """Answer a request on a connection beyond the limit."""
    body = problem(HTTPStatus.SERVICE_UNAVAILABLE, f"too many connections; try again in {RETRY_AFTER_S} s")
    length, retry = str(len(body)).encode(), str(RETRY_AFTER_S).encode()
    headers = [*PROBLEM_HEADERS.items(), (b"content-length", length), (b"retry-after", retry)]
    await send({"type": "http.response.start", "status": int(HTTPStatus.SERVICE_UNAVAILABLE), "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})

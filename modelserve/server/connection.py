"""One client's connection: limits on the time and size of request heads, and on the time a response may stay unread.

Uvicorn's protocol parses HTTP; `modelserve.api.bodies` limits bodies.
"""

import json
from collections.abc import Sequence
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
    from uvicorn.server import ServerState

__all__ = ["BoundedConfig"]

HEAD_LIMIT_BYTES: Final = 65_536
"""Maximum size of a request head (request line and headers); httptools itself has no limit."""
SETTLED_S: Final = 1.0
"""Idle seconds after which a connection may be closed to accept a new one."""
HALF_OPEN_S: Final = 0.1
"""The same, for a connection without a whole request head yet; clients send the head as soon as they connect."""
LOOKED_AT: Final = 8
"""Maximum number of waiting connections that are checked, longest wait first, to find one to close."""
BACKLOG: Final = 4096
"""Connections that the system holds until they are accepted; Linux's default maximum."""

Headers = Sequence[tuple[bytes, bytes]]


class BoundedConfig(uvicorn.Config):
    """Uvicorn's configuration for HTTP alone, with the limits of its connections; logging is left to the process.

    `head_s` are the seconds for a request head, `body_s` those for a body after an early answer and for an answer that
    the client does not read, `most` is the number of open connections.
    """

    def __init__(
        self, app: Any, *, head_s: float, body_s: float, most: int, **given: Any
    ) -> None:  # Any: as in uvicorn
        super().__init__(
            app,
            http=Connection,
            loop="auto",  # uvloop where it is installed
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            **given,
        )
        self.head_s, self.body_s, self.most = head_s, body_s, most
        # Dictionaries are used as ordered sets: the connection that has waited longest comes first.
        self.half_open: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}


class Connection(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with limits on time, size and number of connections.

    Attributes
    ----------
    waits_since
        Time (event loop's clock) since which the connection waits for a request head, or for the rest of the body of
        a request that was answered early; None while a request is answered.
    in_body
        Whether the head of a request has arrived and its body not yet.
    lingers
        Whether the connection is to be closed when the body has arrived.
    """

    def __init__(
        self,
        config: BoundedConfig,
        server_state: "ServerState",
        app_state: dict[str, Any],  # Any: as in uvicorn
        _loop: "asyncio.AbstractEventLoop | None" = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits, self._half_open, self._idle = config, config.half_open, config.idle
        self.waits_since: float | None = None
        self.in_body = self.lingers = False
        self._head_bytes = self._unsent_bytes = 0
        self._unsent_since = 0.0

    def connection_made(self, transport: "asyncio.Transport") -> None:  # type: ignore[override]  # as in uvicorn
        """Accept a connection within the limit, or in place of an idle connection; otherwise reply to it with 503.

        At twice the limit, it is closed without a reply if no idle connection can be closed.
        """
        taken = len(self.connections)
        super().connection_made(cast("asyncio.Transport", Lingering(transport, self)))
        self.waits_since = self.loop.time()
        self._half_open[self] = None
        crowded = taken >= 2 * self._limits.most
        room = taken < self._limits.most or self._made_room(crowded=crowded)
        if not room and crowded:
            transport.abort()
        elif not room or crowded:
            self.app = overloaded

    def _made_room(self, *, crowded: bool) -> bool:
        """Close the connection that has waited longest, if possible a half-open one; return False if there is none."""
        for waiting, settled_s in ((self._half_open, HALF_OPEN_S), (self._idle, SETTLED_S)):
            for each in islice(waiting, LOOKED_AT):
                if each._may_go(0.0 if crowded else settled_s):
                    each.transport.abort()
                    each._leave()
                    return True
        return False

    def _may_go(self, settled_s: float) -> bool:
        settled = self.waits_since is not None and self.loop.time() - self.waits_since > settled_s
        return settled and not self.in_body and self.transport.get_write_buffer_size() == 0

    def _leave(self) -> None:
        self._half_open.pop(self, None)
        self._idle.pop(self, None)
        self.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a request head, and refuse a head that is too long."""
        if self.waits_since is not None and not self.in_body:
            if self._head_bytes == 0:
                self.waits_since = self.loop.time()
                waiting = self._idle if self in self._idle else self._half_open
                waiting.pop(self, None)
                waiting[self] = None
            end = data.find(b"\r\n\r\n") if len(data) > HEAD_LIMIT_BYTES - self._head_bytes else -1
            self._head_bytes += len(data) if end < 0 else end
            if self._head_bytes > HEAD_LIMIT_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {HEAD_LIMIT_BYTES} bytes")
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Record that the request head is complete; refuse it if two parsers could read it differently."""
        self.waits_since, self._head_bytes, self.in_body = None, 0, True
        self._half_open.pop(self, None)
        self._idle.pop(self, None)
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or names.count(b"authorization") > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self.app = refusing(HTTPStatus.BAD_REQUEST, "expected one host header and at most one authorization header")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Record that the request body is complete; close the connection if it lingers (see `Lingering`)."""
        self.in_body = False
        super().on_message_complete()
        if self.lingers:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Start to wait for the next request, unless the client has sent it already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waits_since = self.loop.time()
            self._idle[self] = None

    def shutdown(self) -> None:
        """Close the connection when the server ends: at once if it is idle, otherwise after its response."""
        if self.lingers:
            self.transport.abort()
        super().shutdown()

    def sweep(self, now: float) -> None:
        """Close the connection if its client sends a head or body too slowly, or reads nothing of a response."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent, now
        elif now - self._unsent_since > self._limits.body_s:
            self.transport.abort()
        if self.waits_since is None or self.transport.is_closing():
            return
        waited_s = now - self.waits_since
        if self.in_body:  # answered before its body had arrived, for example with 413
            if waited_s > self._limits.body_s:
                self.transport.abort()
        elif self._head_bytes and waited_s > self._limits.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"expected a request within {self._limits.head_s:g} s")
        elif self.cycle is None and waited_s > self._limits.head_s:
            self.transport.abort()

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        if not self.transport.is_closing():
            headers, body = _problem(status, detail)
            lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), *(b"%s: %s" % each for each in headers)]
            self.transport.write(b"\r\n".join([*lines, b"", body]))
            self.transport.close()


class Lingering:
    """A transport that sends a response in one piece, and stays open while the body of its request still arrives.

    Uvicorn writes the head and the body of a response separately. Here all that is written in one turn of the event
    loop is sent together. If the server dies, a proxy has then received no part of a small response, and can ask
    another server.

    Closing a socket with unread bytes (after an early 413) resets the connection, and the client loses the response. So
    the rest of the body is read and dropped until it ends or `Connection.sweep` closes the connection.
    """

    def __init__(self, transport: "asyncio.Transport", connection: Connection) -> None:
        self._transport, self._connection = transport, connection
        self._written: list[bytes] = []
        self.is_closing = transport.is_closing  # stored, since every call uses it

    def __getattr__(self, name: str) -> Any:  # Any: a method of the transport
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the event loop."""
        if not self._written:
            self._connection.loop.call_soon(self._send)
        self._written.append(data)

    def _send(self) -> None:
        if self._written and not self.is_closing():
            self._transport.write(b"".join(self._written))
        self._written.clear()

    def close(self) -> None:
        """Close the connection, now or when the request body has arrived."""
        self._send()
        if self._connection.in_body:
            self._connection.lingers = True
        else:
            self._transport.close()


def refusing(status: HTTPStatus, detail: str, *more: tuple[bytes, bytes]) -> "ASGI3Application":
    """Return an ASGI application that responds to a request with a problem; `more` are further headers."""
    headers, body = _problem(status, detail)

    async def refuse(_scope: "Scope", _receive: "ASGIReceiveCallable", send: "ASGISendCallable") -> None:
        await send({"type": "http.response.start", "status": int(status), "headers": [*headers, *more]})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return refuse


def _problem(status: HTTPStatus, detail: str) -> tuple[Headers, bytes]:
    """Return a problem (RFC 9457) that closes the connection."""
    body = json.dumps({"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}).encode()
    length = str(len(body)).encode()
    return [
        (b"content-type", b"application/problem+json"),
        (b"content-length", length),
        (b"connection", b"close"),
    ], body


overloaded: Final = refusing(
    HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again in 1 s", (b"retry-after", b"1")
)
"""The application of a connection beyond the limit."""

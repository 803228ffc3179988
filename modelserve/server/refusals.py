"""Responses to requests that never reach the application: an invalid head, too many connections.

They are problem details (RFC 9457) and close the connection. Called by `modelserve.server.connection`.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

HEAD_LIMIT_BYTES: Final = 65_536
"""Maximum size of a request head (request line and headers); httptools itself has no limit."""

RETRY_AFTER_S: Final = 1
SINGLE: Final = (b"host", b"authorization")
"""Headers that a request must not repeat, since two readers of the request might take different ones."""

_SEPARATORS: Final = 4
"""Bytes of a header line besides its name and value."""

_HEADERS: Final[Mapping[bytes, bytes]] = {b"content-type": b"application/problem+json", b"connection": b"close"}

Fault = tuple[HTTPStatus, str]


def fault_of(url: bytes, headers: Sequence[tuple[bytes, bytes]], http_version: str) -> Fault | None:
    """Return the status and detail with which to refuse a request head, or None if it is valid.

    Examples
    --------
    >>> fault_of(b"/", [(b"host", b"a"), (b"host", b"b")], "1.1")
    (<HTTPStatus.BAD_REQUEST: 400>, 'found 2 host headers, expected one')
    """
    size, names = len(url), []
    for name, value in headers:
        size += len(name) + len(value) + _SEPARATORS
        names.append(name)
    if size > HEAD_LIMIT_BYTES:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected a head of at most {HEAD_LIMIT_BYTES} bytes"
    for name in SINGLE:
        if names.count(name) > 1:
            return HTTPStatus.BAD_REQUEST, f"found {names.count(name)} {name.decode()} headers, expected one"
    if http_version == "1.1" and b"host" not in names:
        return HTTPStatus.BAD_REQUEST, "found no host header, expected one (RFC 9112)"
    return None


def refusing(status: HTTPStatus, detail: str, more: Mapping[bytes, bytes] | None = None) -> "ASGI3Application":
    """Return an ASGI application that responds to every request with a problem; `more` are further headers."""
    body = _problem(status, detail)
    headers = [*_HEADERS.items(), (b"content-length", str(len(body)).encode()), *(more or {}).items()]

    async def refuse(_scope: "Scope", _receive: "ASGIReceiveCallable", send: "ASGISendCallable") -> None:
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return refuse


def response_of(status: HTTPStatus, detail: str) -> bytes:
    """Return a whole response, for a connection on which no request head was completed."""
    body = _problem(status, detail)
    head = {**_HEADERS, b"content-length": str(len(body)).encode()}
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), *(b"%s: %s" % each for each in head.items())]
    return b"\r\n".join([*lines, b"", body])


def _problem(status: HTTPStatus, detail: str) -> bytes:
    return json.dumps({"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}).encode()


overloaded: Final = refusing(
    HTTPStatus.SERVICE_UNAVAILABLE,
    f"too many connections; try again in {RETRY_AFTER_S} s",
    {b"retry-after": str(RETRY_AFTER_S).encode()},
)
"""The application of a connection beyond the limit."""

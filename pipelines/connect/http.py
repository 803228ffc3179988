"""HTTP to the servers of a cluster: open a client, and read answers of bounded size and time.

No other module of this room opens a client or reads an answer.
"""

import time
from typing import Any, Final

import httpx2
from pydantic_core import from_json

from pipelines.errors import BadUsage, ConnectError

FAULTS: Final = (httpx2.HTTPError, httpx2.StreamError, httpx2.CookieConflict, OSError)
"""Errors of a call that another attempt may avoid."""

SHOWN: Final = 160


class TooSlow(Exception):
    """Raised for an answer that takes longer than its limit."""


def open_client(url: str, *, expected: str, timeout: httpx2.Timeout, **options: Any) -> httpx2.Client:  # as httpx2's
    """Return a client of the server at an address, without the address's query; `BadUsage` if it is no address."""
    try:
        base = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise BadUsage(expected) from error
    if base.scheme not in ("http", "https") or not base.host:
        raise BadUsage(expected)
    return httpx2.Client(base_url=base.copy_with(query=None, fragment=None), timeout=timeout, **options)


def content_of(response: httpx2.Response, *, most_bytes: int, limit_s: float, cure: str) -> bytes:
    """Return the body of a streamed answer; `cure` tells the user what to do if it exceeds `most_bytes`."""
    parts, size, until_s = [], 0, time.monotonic() + limit_s
    for part in response.iter_bytes():
        size += len(part)
        if size > most_bytes:
            raise ConnectError(f"{address_of(response.url)} sent more than {most_bytes // 2**20} MiB; {cure}")
        if time.monotonic() > until_s:
            raise TooSlow(f"the answer took more than {limit_s:g} s")
        parts.append(part)
    return b"".join(parts)


def address_of(url: httpx2.URL) -> str:
    """Return an address for messages: without user, password and query."""
    return str(url.copy_with(username=None, password=None, query=None, fragment=None)).rstrip("/")


def status_of(response: httpx2.Response) -> str:
    """Return the status of an answer, such as `404 Not Found`."""
    return f"{response.status_code} {response.reason_phrase}".strip()


def reason_in(content: bytes, field: str) -> str:
    """Return a server's own error text in a field of its JSON, shortened and in one line; "" if it gave none."""
    try:
        said = from_json(content)[field]
    except (ValueError, LookupError, TypeError):
        return ""
    line = " ".join(str(said).split())
    return f" ({''.join(each for each in line if each.isprintable())[:SHOWN]})"

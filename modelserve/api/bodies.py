"""Bodies: the bytes of a call, taken in within their limits and read once, straight into what is meant.

No row is judged here beyond what its model says. Called by the routes that take a body.
"""

import asyncio
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from modelserve.api.calls import Call
from modelserve.api.problems import Refusal

Body = TypeVar("Body", bound=BaseModel)

JSON: Final = "application/json"
CLOSE: Final = {"connection": "close"}
"""Sent when a body is refused before its end: what is still to come has no reader."""


class JsonBody(Generic[Body]):
    """One kind of body: the model it is read into."""

    def __init__(self, model: type[Body]) -> None:
        self.model = model
        # The core's own, and so untyped (Any): the adapter's costs twice as much.
        self._read: Any = TypeAdapter(model).validator.validate_json

    async def of(self, call: Call) -> Body:
        """Read the body of a call.

        Raises
        ------
        Refusal
            It is too large (413), too slow (408), or of another type (415).
        ValidationError
            It is no JSON, or not what is meant.
        """
        check_json(call)
        body: Body = self._read(await take(call))
        return body


def check_json(call: Call) -> None:
    """Raise `Refusal` (415) where a call says that its body is no JSON; one that says nothing is taken at its word."""
    said = call.headers.get(b"content-type", b"application/json")
    kind = said.partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise Refusal(
            415, f"content-type: {shown(said)}, expected application/json", headers={"accept": "application/json"}
        )
    check_plain(call)


def check_plain(call: Call) -> None:
    """Raise `Refusal` (415) where a body is compressed: how large it would grow is not known beforehand."""
    coding = call.headers.get(b"content-encoding", b"identity")
    if coding.strip().lower() != b"identity":
        raise Refusal(415, f"content-encoding: {shown(coding)}, expected none", headers={"accept-encoding": "identity"})


async def take(call: Call) -> bytes:
    """Return the bytes of a call's body, none of them twice in memory.

    Raises
    ------
    Refusal
        More bytes than allowed (413), or not all of them in time (408).
    """
    limit = call.desk.settings.body_limit_bytes
    said = call.headers.get(b"content-length")
    if said is not None and said.isdigit() and int(said[:20]) > limit:
        raise _too_large(f"{int(said[:20])} bytes", limit)
    limit_s = call.desk.settings.body_read_limit_s
    try:
        async with asyncio.timeout(limit_s):
            return await _taken(call.receive, limit)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {limit_s:g} s", headers=CLOSE) from None


async def _taken(receive: Receive, limit: int) -> bytes:
    message = await receive()
    parts, size = [], 0
    while message["type"] == "http.request":
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large("more", limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        message = await receive()
    raise ClientDisconnect


def _too_large(found: str, limit: int) -> Refusal:
    return Refusal(
        413, f"the body has {found}, expected at most {limit} bytes; send fewer jobs in one call", headers=CLOSE
    )


def shown(value: bytes) -> str:
    """Return a header's value for a message: short, and of plain characters."""
    return repr(value[:60].decode("ascii", errors="replace"))

"""Bodies of posted calls within a limit of size, and the health page; shared by the webhook and the extender."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["BODY_LIMIT_BYTES", "TooLarge", "body_of", "healthz"]

BODY_LIMIT_BYTES: Final = 8 * 2**20
"""Largest body: an object and its old version have at most 1.5 MB each in a cluster's store."""


class TooLarge(Exception):
    """A body above the limit."""


async def body_of(request: Request) -> bytes:
    """Return the body of a call."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > BODY_LIMIT_BYTES:
            raise TooLarge(f"found a larger body, expected at most {BODY_LIMIT_BYTES} bytes")
    return bytes(found)


async def healthz(request: Request) -> Response:
    """Reply with 200 while the process serves, and with 503 while it drains."""
    return Response(status_code=503 if request.app.state.draining else 200)

"""`/`: the service's page for people, as files that are sent as they are.

What the page shows it asks of the API like any caller, with the visitor's token; no call is answered here. The files
hold nothing that is secret, so they need no token, and stand in no OpenAPI document. Added by the app.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.queries import check_known

MEDIA_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
NAMES: Final = (
    "answer.js", "app.js", "charts.js", "elements.js", "icon.svg", "job.js", "models.js", "page.css", "recent.js",
    "service.js", "trying.js", "words.js",
)  # fmt: skip
PATHS: Final[Mapping[str, str]] = {"/": "index.html", **{f"/page/{name}": name for name in NAMES}}
"""Every path of the page, and its file."""

HEADERS: Final[Mapping[str, str]] = {
    # Scripts, styles and calls of this service alone; nothing inline, no form that navigates, no markup from text.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Kept, and asked after each time: a new version of the service is seen at once, an old one costs no bytes.
    "cache-control": "no-cache",
}


def add_front(app: FastAPI) -> None:
    """Add the page to an application."""
    for path in PATHS:
        app.add_route(path, front, include_in_schema=False)


async def front(request: Request) -> Response:
    """Send a file of the page, or say that the one at hand is still it; no query means anything here."""
    check_known(request, ())
    name = PATHS[request.scope["path"]]
    content, tag = _content(name)
    headers = {**HEADERS, "etag": tag}
    if _holds(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])


def _holds(none_match: str, tag: str) -> bool:
    """Tell whether a header names a tag (RFC 9110, 13.1.2: compared weakly).

    Examples
    --------
    >>> _holds('"a", W/"b"', '"b"'), _holds("*", '"b"'), _holds('"a"', '"b"')
    (True, True, False)
    """
    held = [each.strip().removeprefix("W/") for each in none_match.split(",")]
    return "*" in held or tag in held


@lru_cache(maxsize=len(PATHS))
def _content(name: str) -> tuple[bytes, str]:
    content = (files("modelserve") / "page" / name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'

"""The HTML pages: the web page `/` with its files, and `/docs`, which shows the OpenAPI document.

The pages load nothing from other hosts, need no token and contain no secret. The web page reads its data from the API
with a token that the visitor enters. Added by `modelserve.api.app`.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from modelserve.api.bodies import parameters_of

Document = Mapping[str, Any]  # Any: an OpenAPI document

STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f4f4f2;padding:1rem;overflow:auto}"
    "h2{border-bottom:1px solid #ccc}summary{cursor:pointer;padding:.25rem 0}b{display:inline-block;min-width:4.5rem}"
    "td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
)
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def add_pages(app: FastAPI) -> None:
    """Add the pages to an application."""

    @lru_cache
    def written() -> str:
        return page_of(app.openapi())

    async def docs(_: Request) -> Response:
        return HTMLResponse(written(), headers={"content-security-policy": POLICY})

    app.add_route("/docs", docs, include_in_schema=False)
    for path in PATHS:
        app.add_route(path, page_file, include_in_schema=False)


def page_of(document: Document) -> str:
    """Return an OpenAPI document as HTML: its operations by tag, and the schemas of bodies and responses."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            title = f"<b>{method.upper()}</b><code>{escape(path)}</code> {escape(operation['summary'])}"
            by_tag.setdefault(operation["tags"][0], []).append(_details(title, _table(operation)))
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in by_tag.items())
    shapes = "".join(
        _details(f"<code>{escape(name)}</code>", f"<pre>{escape(json.dumps(schema, indent=2))}</pre>", escape(name))
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    info = {name: escape(document["info"][name]) for name in ("title", "version", "summary")}
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{info["title"]}</title><style>{STYLE}</style>'
        f'<h1>{info["title"]} {info["version"]}</h1><p>{info["summary"]} <a href="openapi.json">openapi.json</a></p>'
        f"{parts}<h2>shapes</h2>{shapes}</html>"
    )


def _details(title: str, inside: str, name: str = "") -> str:
    return f'<details id="{name}"><summary>{title}</summary>{inside}</details>'


def _table(operation: Document) -> str:
    rows = [(each["name"], each["in"], each["description"]) for each in operation.get("parameters", ())]
    rows += [("body", kind, _shape(each)) for kind, each in operation.get("requestBody", {}).get("content", {}).items()]
    rows += [
        (status, each["description"], " ".join(_shape(content) for content in each.get("content", {}).values()))
        for status, each in operation["responses"].items()
    ]
    return f"<table>{''.join(f'<tr><td>{escape(a)}<td>{escape(b)}<td>{c}' for a, b, c in rows)}</table>"


def _shape(content: Document) -> str:
    name = str(content["schema"].get("$ref", "")).rpartition("/")[2]
    return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>' if name else "text"


FOLDER: Final = files("modelserve") / "page"
PATHS: Final[Mapping[str, str]] = {"/": "index.html"} | {
    f"/page/{each.name}": each.name for each in FOLDER.iterdir() if each.name != "index.html"
}
"""The file served for each path of the web page."""
FILES: Final = StaticFiles(packages=[("modelserve", "page")])

HEADERS: Final[Mapping[str, str]] = {
    # Allow only scripts, styles, images and requests of this host; no inline code, no forms, no HTML built from text.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # The browser keeps a copy but asks each time whether the file has changed.
    "cache-control": "no-cache",
}


async def page_file(request: Request) -> Response:
    """Send a file of the web page, or 304 if the browser's copy is current; refuse query parameters."""
    parameters_of(request, ())
    response = await FILES.get_response(PATHS[request.scope["path"]], request.scope)
    response.headers.update(HEADERS)
    return response

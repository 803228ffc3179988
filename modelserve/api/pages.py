"""`/docs`: the OpenAPI document as one page for people, that loads nothing from anywhere else.

The document itself is FastAPI's `/openapi.json`. Clusters without a way out have this page all the same, and nobody
else's scripts run beside a service that knows tokens.
"""

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

Document = Mapping[str, Any]  # an OpenAPI document: any JSON there is

STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f4f4f2;padding:1rem;overflow:auto}"
    "h2{border-bottom:1px solid #ccc}summary{cursor:pointer;padding:.25rem 0}b{display:inline-block;min-width:4.5rem}"
    "td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
)
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def add_pages(app: FastAPI) -> None:
    """Add the page to an application."""
    written: list[str] = []

    async def docs(_: Request) -> Response:
        if not written:
            written.append(page_of(app.openapi()))
        return HTMLResponse(written[0], headers={"content-security-policy": POLICY})

    app.add_route("/docs", docs, include_in_schema=False)


def page_of(document: Document) -> str:
    """Return the page of a document: its operations by tag, and the shapes of what they take and give."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    parts = [f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in by_tag.items()]
    shapes = [
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<pre>{escape(json.dumps(schema, indent=2))}</pre></details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f"<style>{STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f'<p>{escape(info["summary"])} <a href="openapi.json">openapi.json</a></p>'
        f"{''.join(parts)}<h2>shapes</h2>{''.join(shapes)}</html>"
    )


def _operation(method: str, path: str, operation: Document) -> str:
    rows = [(each["name"], each["in"], each["description"]) for each in operation.get("parameters", ())]
    rows += [("body", kind, _shape(each)) for kind, each in operation.get("requestBody", {}).get("content", {}).items()]
    rows += [
        (status, each["description"], " ".join(_shape(content) for content in each.get("content", {}).values()))
        for status, each in operation["responses"].items()
    ]
    cells = "".join(f"<tr><td>{escape(a)}<td>{escape(b)}<td>{c}" for a, b, c in rows)
    title = f"<b>{method.upper()}</b><code>{escape(path)}</code> {escape(operation['summary'])}"
    return f"<details><summary>{title}</summary><table>{cells}</table></details>"


def _shape(content: Document) -> str:
    name = str(content["schema"].get("$ref", "")).rpartition("/")[2]
    return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>' if name else "text"

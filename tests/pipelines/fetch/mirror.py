"""A mirror on this machine that misbehaves as told, and fetching from it."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pipelines.fetch.download import Patience
from pipelines.fetch.fetch import FetchedFile, fetch

NAME = "table.csv"
BODY = bytes(range(256)) * 2000
QUICK = Patience(connect_timeout_s=2.0, read_timeout_s=0.2, attempts=3)


@dataclass
class Mirror:
    """A server on this machine that misbehaves as told: one fault per request, in order, then none."""

    url: str = ""
    body: bytes = BODY
    ranges: bool = True
    faults: list[tuple[str, object]] = field(default_factory=list)
    requests: list[dict[str, str | None]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


def handler_of(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            wanted = {name: self.headers.get(name) for name in ("Range", "Accept-Encoding")}
            mirror.requests.append({"path": self.path, **wanted})
            fault, how = mirror.faults.pop(0) if mirror.faults else ("none", None)
            if fault == "status":
                status, headers = how
                self._head(status, {"Content-Length": "0", **headers})
            elif fault == "redirect":
                self._head(302, {"Location": str(how), "Content-Length": "0"})
            else:
                self._send(fault, how)

        def _send(self, fault: str, how: object) -> None:
            start = self._start()
            if start is not None and start >= len(mirror.body):
                self._head(416, {"Content-Range": f"bytes */{len(mirror.body)}", "Content-Length": "0"})
                return
            rest = mirror.body[start or 0 :]
            headers = {"Content-Length": str(len(rest))}
            if start is not None:
                shown = start + 1 if fault == "shifted" else start
                headers["Content-Range"] = f"bytes {shown}-{len(mirror.body) - 1}/{len(mirror.body)}"
            if fault == "encoded":
                headers["Content-Encoding"] = "gzip"
            if fault in ("unsized", "endless"):
                del headers["Content-Length"]
            self._head(200 if start is None else 206, headers)
            if fault == "endless":
                rest = rest * 4
            if fault in ("cut", "stall", "unsized"):
                rest = rest[: int(str(how))]
            self.wfile.write(rest)
            if fault == "stall":
                mirror.released.wait(10)

        def _start(self) -> int | None:
            wanted = self.headers.get("Range")
            if wanted is None or not mirror.ranges:
                return None
            return int(wanted.removeprefix("bytes=").removesuffix("-"))

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

    return Handler


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """Clients that hang up are part of these tests."""


def manifest_of(
    tmp_path: Path, *, body: bytes = BODY, bound: str | None = None, name: str = NAME, more: str = ""
) -> Path:
    path = tmp_path / "trace.toml"
    path.write_text(
        f"""
name = "trace"
title = "A trace"
publisher = "Nobody"
licence = "CC0"
homepage = "https://example.org/"
citation = "None"
next = "None"

[[files]]
name = "{name}"
url = "https://example.org/{name}"
sha256 = "{hashlib.sha256(body).hexdigest()}"
{bound or f"size_bytes = {len(body)}"}
{more}
"""
    )
    return path


@dataclass
class Pauses:
    """Stands in for `time.sleep`: notes the pauses and lets something happen in them."""

    taken: list[float] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def __call__(self, pause_s: float) -> None:
        self.taken.append(pause_s)
        self.meanwhile()


def fetched(
    mirror: Mirror, out: Path, manifest: Path, pauses: Pauses | None = None, **more: object
) -> list[FetchedFile]:
    return fetch(
        "trace",
        out,
        manifest=manifest,
        base_url=mirror.url,
        patience=QUICK,
        sleep=pauses or Pauses(),
        **more,
    )


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))

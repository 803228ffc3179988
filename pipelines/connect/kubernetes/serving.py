"""Serve the webhook or the extender in this process, with limited connections and a certificate that may change.

Kubernetes restarts the process if it dies, so no other process watches it.
"""

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from modelserve.errors import BadSettings
from modelserve.server.connection import BoundedConfig
from modelserve.server.draining import DrainingServer
from modelserve.server.environment import address_of, listening_socket
from pipelines.errors import BadUsage

__all__ = ["serve_app"]

BODY_LIMIT_BYTES: Final = 8 * 2**20
"""Largest body: an object and its old version have at most 1.5 MB each in a cluster's store."""
SLOW_S: Final = 10.0
"""Longest time in seconds to receive a head, to receive a body, and for a client to read an answer."""
CONNECTIONS: Final = 1000
KEEP_ALIVE_S: Final = 120
"""Longer than the API server keeps an idle connection (90 s), so that it closes first."""
DRAIN_S: Final = 5.0
"""Seconds for which a stopping server still answers, until the cluster sends it no more calls."""
STOP_LIMIT_S: Final = 5.0

log = logging.getLogger("taut.kubernetes")
Stamp = tuple[float, int, float, int]
Call = Callable[[bytes], Awaitable[bytes]]
"""Returns the JSON that answers a body; raises `ValueError` for a body that it cannot read."""


def app_of(calls: Mapping[str, Call], *pages: Route) -> Starlette:
    """Return an application of posted calls by path, with `/healthz`: 200 while it serves, 503 while it drains."""
    routes = [Route(path, _posted(call), methods=["POST"]) for path, call in calls.items()]
    app = Starlette(routes=[*routes, Route("/healthz", _healthz), *pages])
    app.state.draining = False
    return app


def _posted(call: Call) -> Callable[[Request], Awaitable[Response]]:
    async def reply(request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > BODY_LIMIT_BYTES:
                text = f"found a larger body, expected at most {BODY_LIMIT_BYTES} bytes"
                return Response(text, status_code=413, media_type="text/plain")
        try:
            return Response(await call(bytes(body)), media_type="application/json")
        except ValueError as error:
            return Response(str(error), status_code=400, media_type="text/plain")

    return reply


async def _healthz(request: Request) -> Response:
    return Response(status_code=503 if request.app.state.draining else 200)


class Certificate:
    """A certificate and its key, read again when the files change; new connections then get the new one."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._stamp = self._now()
            self.context.load_cert_chain(certificate, key, "")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadUsage(
                f"--tls-certificate {certificate}, --tls-key {key}: {type(error).__name__}; expected a PEM certificate "
                f"and its key"
            ) from error

    def refresh(self) -> bool:
        """Read the files again if they have changed, and return whether a new certificate is in use.

        If certificate and key do not match, for example halfway through a change, the next call tries again.
        """
        try:
            stamp = self._now()
            if stamp == self._stamp:
                return False
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files, "")  # a context must not be half new
            self.context.load_cert_chain(*self._files, "")
        except (ssl.SSLError, OSError, ValueError) as error:
            log.warning("the new certificate cannot be used (%s); the old one stays", type(error).__name__)
            return False
        self._stamp = stamp
        log.info("read a new certificate")
        return True

    def _now(self) -> Stamp:
        certificate, key = (path.stat() for path in self._files)
        return certificate.st_mtime, certificate.st_ino, key.st_mtime, key.st_ino


def serve_app(
    app: Starlette, host: str, port: int, *, certificate: Path | None, key: Path | None, say: Callable[[str], None]
) -> None:
    """Serve an application until SIGTERM or SIGINT, and print its address; without a certificate it is plain HTTP."""
    if (certificate is None) != (key is None):
        raise BadUsage("--tls-certificate and --tls-key: found one, expected both or neither")
    held = None if certificate is None or key is None else Certificate(certificate, key)
    try:
        socket = listening_socket(host, port)
    except BadSettings as error:
        raise BadUsage(str(error)) from error
    with socket as listening:
        config = BoundedConfig(
            app,
            head_s=SLOW_S,
            body_s=SLOW_S,
            most=CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_S,
            ssl_context_factory=None if held is None else lambda *_: held.context,
        )
        server = DrainingServer(
            config,
            state=app.state,
            drain_s=DRAIN_S,
            stop_limit_s=STOP_LIMIT_S,
            on_start=lambda: say(f"listening on {address_of(listening, tls=held is not None)}"),
            on_beat=lambda: None if held is None else held.refresh(),
        )
        server.run(sockets=[listening])

"""Serve the webhook or the extender in this process, with limits on connections, and a certificate that may change.

Kubernetes restarts the process if it dies, so no other process watches it. Called by `taut kube`.
"""

import logging
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from modelserve.errors import BadSettings
from modelserve.server.connection import BoundedConfig
from modelserve.server.draining import DrainingServer
from modelserve.server.listening import address_of, listening_socket
from pipelines.connect.kubernetes.opening import open_extender, open_webhook

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["Address", "serve_extender", "serve_webhook"]

SLOW_S: Final = 10.0
"""Seconds for a head, a body, and an answer that is not read."""
CONNECTIONS: Final = 1000
KEEP_ALIVE_S: Final = 120
"""Longer than the API server keeps an idle connection (90 s), so that it closes first."""
STOP_LIMIT_S: Final = 5.0

log = logging.getLogger("taut.kubernetes")
Stamp = tuple[float, int, float, int]


class Certificate:
    """A certificate and its key, read again when the files change; new connections then get the new one.

    Raises
    ------
    BadSettings
        The files cannot be used together.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._stamp = self._now()
            self.context.load_cert_chain(certificate, key, "")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadSettings(
                f"--tls-certificate {certificate}, --tls-key {key}: {type(error).__name__}; expected a PEM certificate "
                f"and its key"
            ) from error

    def refresh(self) -> bool:
        """Read the files again if they have changed, and return whether a new certificate is in use.

        Files that do not belong together, for example halfway through a change, are tried again at the next call.
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


def serve_hook(
    app: "Starlette",
    host: str,
    port: int,
    *,
    certificate: Certificate | None,
    drain_s: float,
    say: Callable[[str], None] = log.info,
) -> None:
    """Serve an application until SIGTERM or SIGINT; say its address once it listens.

    Raises
    ------
    BadSettings, ListenError
        The address is not valid, or in use.
    """
    with listening_socket(host, port) as listening:
        config = BoundedConfig(
            app,
            head_s=SLOW_S,
            body_s=SLOW_S,
            most=CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_S,
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
        )
        server = DrainingServer(
            config,
            state=app.state,
            drain_s=drain_s,
            stop_limit_s=STOP_LIMIT_S,
            on_start=lambda: say(f"listening on {address_of(listening, tls=certificate is not None)}"),
            on_beat=lambda: None if certificate is None else _refresh(certificate),
        )
        server.run(sockets=[listening])


def _refresh(certificate: Certificate) -> None:
    certificate.refresh()


DRAIN_S: Final = 5.0
"""Seconds for which a stopping server still answers, until the cluster sends it no more calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; plain HTTP without a certificate and its key."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def read_certificate(self) -> Certificate | None:
        """Return the certificate, or None for plain HTTP.

        Raises
        ------
        BadSettings
            Only one of the two files is named, or they cannot be used together.
        """
        if self.certificate is None and self.key is None:
            return None
        if self.certificate is None or self.key is None:
            raise BadSettings("--tls-certificate and --tls-key: found one, expected both or neither")
        return Certificate(self.certificate, self.key)


def serve_webhook(
    config: Path, urls: Sequence[str], token: str | None, address: Address, *, say: Callable[[str], None]
) -> None:
    """Serve the admission webhook, which asks the service at `urls`, until SIGTERM or SIGINT.

    Raises
    ------
    BadSettings, BadRequest, ListenError
        The configuration, an address of the service, the certificate or the address is not valid.
    """
    app, certificate = open_webhook(config, urls, token), address.read_certificate()
    serve_hook(app, address.host, address.port, certificate=certificate, drain_s=DRAIN_S, say=say)


def serve_extender(
    gpus: Sequence[str],
    changes: Sequence[Iterable[tuple[str, Mapping[str, object]]]],
    address: Address,
    *,
    say: Callable[[str], None],
) -> None:
    """Serve the scheduler extender, which follows `changes` of nodes and pods, until SIGTERM or SIGINT.

    Raises
    ------
    BadSettings, ListenError
        The certificate or the address is not valid.
    """
    app, certificate = open_extender(gpus, changes), address.read_certificate()
    serve_hook(app, address.host, address.port, certificate=certificate, drain_s=DRAIN_S, say=say)

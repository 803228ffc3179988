"""Serve the Kubernetes interface with a certificate. Called by `taut kube`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelserve.api.kubernetes.opening import open_extender, open_webhook
from modelserve.errors import BadSettings
from modelserve.server.hooks import Certificate, serve_hook

__all__ = ["Address", "serve_extender", "serve_webhook"]

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

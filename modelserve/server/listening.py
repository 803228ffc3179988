"""The listening socket, the check of the TLS certificate, and the limit of open files."""

import contextlib
import resource
import socket
import ssl
from typing import Final

from modelserve.errors import BadSettings, ListenError
from modelserve.settings import PREFIX, ServeSettings

__all__ = ["address_of", "listening_socket"]

SPARE_FILES: Final = 128
"""Maximum number of open files that a worker needs besides its connections: models, the store, libraries."""
LEAST_CONNECTIONS: Final = 16
"""Number of connections below which the server does not start for lack of open files."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; the first worker that is ready starts to listen on it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise BadSettings(
            f"{PREFIX}HOST: {host[:60]!r} is not an address ({error.strerror}); expected a host name or an IP address"
        ) from error
    family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise ListenError(
            f"cannot listen on {host[:60]}:{port} ({error.strerror}); expected a free address of this machine, "
            f"choose another with --host and --port"
        ) from error
    return listening


def address_of(listening: socket.socket, *, tls: bool) -> str:
    """Return the address of a bound socket as a URL."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def check_certificate(settings: ServeSettings) -> None:
    """Raise `BadSettings`, naming the settings, unless the TLS certificate and its key can be used together."""
    certificate, key, secret = settings.tls_certificate, settings.tls_key, settings.tls_key_password
    if certificate is None or key is None:
        return
    try:
        for path in (certificate, key):
            path.open("rb").close()
        # With no password at all, OpenSSL would ask for it at the terminal; an empty password fails instead.
        password = secret.get_secret_value() if secret else ""
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password)
    except (ssl.SSLError, OSError, ValueError) as error:
        unreadable = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
        reason = str(error)[:200] if unreadable else getattr(error, "reason", None) or "not a certificate in PEM"
        raise BadSettings(
            f"{PREFIX}TLS_CERTIFICATE, {PREFIX}TLS_KEY, {PREFIX}TLS_KEY_PASSWORD: found {reason}, "
            f"expected a PEM certificate, its key, and the key's password if it has one"
        ) from error


def allow_open_files(connections_limit: int) -> int:
    """Increase this process's limit of open files to what its connections need, as far as the system allows.

    Return the limit of connections: `connections_limit`, or fewer if the system allows too few open files for them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # At twice the limit, connections are closed without a response.
    needed = 2 * connections_limit + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY:
        return connections_limit
    least = SPARE_FILES + 2 * min(connections_limit, LEAST_CONNECTIONS)
    if soft < least:
        raise ListenError(f"found a limit of {soft} open files, expected at least {least}; raise it with ulimit -n")
    return min(connections_limit, (soft - SPARE_FILES) // 2)

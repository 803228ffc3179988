"""The environment of the server: what it needs from the system, and what its processes get.

It takes an address, a TLS certificate and open files. Each process gets the settings as variables, a folder of shared
metrics, a log, and a pipe to the supervisor: a socket as standard input. The child sends signs of life (empty lines)
and one line of JSON when it is ready. When the supervisor ends, even by kill -9, the socket closes and the child ends.
"""

import contextlib
import json
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import SecretStr

from modelserve.errors import BadSettings, ListenError
from modelserve.settings import PREFIX, ServeSettings

__all__ = ["address_of", "listening_socket", "write_log_lines"]

SPARE_FILES: Final = 128
"""Maximum number of open files that a worker needs besides its connections: models, the store, libraries."""
LEAST_CONNECTIONS: Final = 16
"""Number of connections below which the server does not start for lack of open files."""
STORE_INODE: Final = "TAUT_STORE_INODE"
"""Variable with the inode of the store's file that the first ready worker opened; later workers open no other."""
METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


def child_environment(settings: ServeSettings, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: that of this process, the settings, and `more`.

    `ServeSettings()` equals `settings` there; an absent value is an empty variable. OpenMP gets one thread unless the
    environment says otherwise: its idle threads would busy-wait on cores that other workers need.
    """
    plain = settings.model_dump(mode="json")
    given = {f"{PREFIX}{name.upper()}": _text(getattr(settings, name), plain[name]) for name in plain}
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ, **given, **more}


def _text(value: object, plain: object) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return plain if isinstance(plain, str) else json.dumps(plain)


@contextmanager
def metrics_folder(workers: int) -> Iterator[Mapping[str, str]]:
    """Yield the environment variables with which workers share their metrics in a folder; none for a single worker.

    A folder named in the environment is emptied of earlier metrics and used; otherwise the folder is temporary.
    """
    named = os.environ.get(METRICS_FOLDER)
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
        _remove(named, "*.db")
        yield {METRICS_FOLDER: named}
    elif workers == 1:
        yield {}
    else:
        with tempfile.TemporaryDirectory(prefix="taut-metrics-") as temporary:
            yield {METRICS_FOLDER: temporary}


def forget_live(folder: str | None, slot: str) -> None:
    """Remove the gauges of a dead worker from the shared metrics; its counters stay."""
    if folder:
        _remove(folder, f"gauge_live*_{slot}.db")


def _remove(folder: str, pattern: str) -> None:
    for left in Path(folder).glob(pattern):
        left.unlink(missing_ok=True)


def follow_supervisor(*, end_within_s: float) -> Callable[[bytes], None]:
    """Watch the pipe in a thread; return a function that sends data to the supervisor and never blocks.

    When the supervisor ends, SIGTERM is sent to this process, which exits after `end_within_s` at the latest, even if
    its event loop hangs.
    """
    pipe = socket.socket(fileno=os.dup(0))

    def watch() -> None:
        with contextlib.suppress(OSError):  # a reset connection means that the parent has ended
            while pipe.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_within_s)
        os._exit(1)

    def send(data: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent is busy or has ended
            pipe.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    threading.Thread(target=watch, name="supervisor-pipe", daemon=True).start()
    return send


class LogLines(logging.Formatter):
    """Write each record as a line of JSON, as in the access log, or as readable text; a traceback is the error."""

    def __init__(self, form: Literal["json", "console"]) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one text."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, message = record.levelname.lower(), record.getMessage()
        error = self.formatException(record.exc_info) if record.exc_info else ""
        if self._form == "console":
            return f"{at} {level} {message}" + (f"\n{error}" if error else "")
        line = {"ts": at, "level": level, "event": "log", "logger": record.name, "message": message}
        return json.dumps(line | ({"error": error} if error else {}))


def write_log_lines(form: Literal["json", "console"]) -> None:
    """Set up logging of this process: to stderr, as JSON or readable text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "asyncio", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)


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


def mirror() -> None:
    """Copy models from the registry to disk until the parent process ends: the sync process."""
    follow_supervisor(end_within_s=5.0)
    write_log_lines(ServeSettings().log_format)
    from modelserve.loading.sync import main as mirror_forever

    mirror_forever()

"""One worker process: open the service and serve its application on the socket that the parent bound.

`modelserve.server.supervisor` starts it as `python -m modelserve.server.worker SLOT FD`: SLOT is the worker's number,
FD the file descriptor of the socket. Slow imports happen here, never in the parent.
"""

import gc
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, Final

from modelserve.errors import ServeError
from modelserve.server.environment import (
    METRICS_FOLDER,
    STORE_INODE,
    allow_open_files,
    follow_supervisor,
    write_log_lines,
)
from modelserve.settings import ServeSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

KEEP_ALIVE_S: Final = 75
"""Seconds for which an idle connection is kept; longer than in proxies (nginx: 60 s), so that they close first."""
SWITCH_S: Final = 0.0005
"""Longest wait of a call for the interpreter lock while another thread runs, for example the log's."""
GARBAGE: Final = 50_000
"""New objects between two garbage collections; with Python's 700, they took a quarter of a call of a thousand jobs."""

log = logging.getLogger("taut.server")

Facts = Mapping[str, object]
Opened = tuple["Starlette", Callable[[], Facts]]
Opener = Callable[[ServeSettings], AbstractContextManager[Opened]]


@contextmanager
def service_application(settings: ServeSettings) -> "Iterator[Opened]":
    """Open the service; yield its application and a function that returns the loaded models."""
    from modelserve.api.app import create_app
    from modelserve.service import open_service

    inode = os.environ.get(STORE_INODE)
    with closing(open_service(settings, store_inode=int(inode) if inode else None)) as service:

        def facts() -> Facts:
            held = service.models.current
            names = [f"{name}@{model.bundle.version}" for name, model in sorted(held.champions.items())]
            inode = service.store.file[1] if service.store.file else None
            return {"models": names, "failures": dict(held.failures), "store_inode": inode}

        yield create_app(service), facts


def run(arguments: list[str], opener: Opener = service_application) -> None:
    """Serve the application that `opener` opens until the parent or a signal ends the process.

    An error at the start is logged as one line, and the process exits with 1.
    """
    # Objects loaded at the start stay, so collecting garbage meanwhile costs a fifth of the time and frees nothing.
    gc.disable()
    slot, descriptor = arguments
    settings = ServeSettings()
    write_log_lines(settings.log_format)
    send = follow_supervisor(end_within_s=settings.drain_s + settings.stop_limit_s)
    if os.environ.get(METRICS_FOLDER):
        from prometheus_client import values

        # Store metrics under the worker's number, so that a restarted worker continues its counters. The documentation
        # of prometheus_client sets the number in this way (for uWSGI).
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]  # untyped in prometheus_client
    try:
        connections = allow_open_files(settings.connections_limit)
        settings = settings.model_copy(update={"connections_limit": connections})
        with opener(settings) as (app, facts), socket.socket(fileno=int(descriptor)) as listening:
            _serve(app, facts, settings, send, listening)
    except ServeError as error:
        log.error("worker %s: %s", slot, error)
        sys.exit(1)


def _serve(
    app: "Starlette",
    facts: Callable[[], Facts],
    settings: ServeSettings,
    send: Callable[[bytes], None],
    listening: socket.socket,
) -> None:
    from modelserve.loading.rules import prepare
    from modelserve.server.connection import BoundedConfig
    from modelserve.server.draining import DrainingServer

    def started() -> None:
        send(json.dumps(facts()).encode() + b"\n")
        threading.Thread(target=prepare, name="rules", daemon=True).start()

    secret = settings.tls_key_password
    config = BoundedConfig(
        app,
        head_s=settings.header_read_limit_s,
        body_s=settings.body_read_limit_s,
        most=settings.connections_limit,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_keyfile_password=secret.get_secret_value() if secret else None,
    )
    server = DrainingServer(
        config,
        state=app.state,
        drain_s=settings.drain_s,
        stop_limit_s=settings.stop_limit_s,
        on_start=started,
        on_beat=lambda: send(b"\n"),
    )
    # The objects loaded so far live as long as the process, so exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()
    sys.setswitchinterval(SWITCH_S)
    server.run(sockets=[listening])


if __name__ == "__main__":
    run(sys.argv[1:])

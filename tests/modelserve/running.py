"""A service that runs: the real application over two small models, on a free port, in a thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from modelserve.api.app import create_app
from modelserve.service import open_service
from modelserve.settings import ServeSettings
from tests.modelserve.conftest import write_small_bundle
from tests.modelserve.mirrored import NAME, USAGE, Folder

START_LIMIT_S = 60.0


@contextmanager
def running(place: Path, **settings: object) -> Iterator[str]:
    """Serve `runtime.pai.ctr@7` and `usage.pai.ctr@5` from a new folder; yields the address."""
    sources = {kind: place / "trained" / kind for kind in ("runtime", "usage")}
    for kind, folder in sources.items():
        write_small_bundle(folder, kind)
    (place / "bundles").mkdir()
    mirrored = Folder(place / "bundles", sources)
    mirrored.add(NAME, "7")
    mirrored.add(USAGE, "5")
    said = {"bundles": mirrored.path, "store": f"sqlite:///{place}/serve.db", "trace": "pai"}
    with (
        closing(open_service(ServeSettings(**{**said, **settings}))) as service,
        serving(create_app(service)) as address,
    ):
        yield address


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve an application on a free port, in a thread; yields the address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{_port(server, thread)}"
    finally:
        server.should_exit = True
        thread.join(START_LIMIT_S)


def _port(server: uvicorn.Server, thread: threading.Thread) -> int:
    until = time.monotonic() + START_LIMIT_S
    while not server.started:
        assert thread.is_alive(), "the service ended as it began"
        assert time.monotonic() < until, "the service did not begin in time"
        time.sleep(0.02)
    return server.servers[0].sockets[0].getsockname()[1]

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.fetch.mirror import Mirror, QuietServer, handler_of


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("NO_PROXY", "*")
    site = Mirror()
    with QuietServer(("127.0.0.1", 0), handler_of(site)) as server:
        site.url = f"http://127.0.0.1:{server.server_port}/traces"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        site.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"

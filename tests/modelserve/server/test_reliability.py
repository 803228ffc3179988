"""The real service in real processes: what is killed under load loses no call that a client makes again."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.benchmarks.serving.processes import free_port
from tests.modelserve.mirrored import Folder
from tests.modelserve.server.load import body_of, calling
from tests.modelserve.server.running import Running, alive, check_serving, command_of, start, stop, until

ROOT = Path(__file__).resolve().parents[3]
Serve = Callable[..., Running]
pytestmark = pytest.mark.slow


@pytest.fixture
def bundles(tmp_path: Path, small_bundles: dict[str, Path]) -> Path:
    folder = Folder(tmp_path / "bundles", small_bundles)
    folder.add("runtime.pai.ctr", "1")
    folder.add("usage.pai.ctr", "1")
    return folder.path


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts `taut serve`, and waits until it serves."""
    running: list[Running] = []

    def begin(bundles: Path, *, ready: bool = True, **settings: object) -> Running:
        said = {"port": 0, "drain_s": 0, "store": f"sqlite:///{tmp_path / 'serve.db'}", **settings}
        values = {f"TAUT_SERVE_{name.upper()}": str(value) for name, value in said.items()}
        taut = [sys.executable, "-c", "from pipelines.cli import main; main()"]
        one = start([*taut, "serve", "--bundles", str(bundles)], values)
        running.append(one)
        if ready:
            check_serving(one)
        return one

    yield begin
    for one in running:
        stop(one)


def test_workers_killed_under_load_lose_no_call_and_no_count(serve: Serve, bundles: Path) -> None:
    server = serve(bundles, workers=2)
    counted: list[float] = []

    def kill_three() -> None:
        for _ in range(3):
            before = server.workers()
            os.kill(before[0], signal.SIGKILL)
            counted.extend(calls_counted(server) for _ in range(5))
            until(lambda gone=before[0]: len(server.workers()) == 2 and gone not in server.workers(), what="a worker")
            counted.extend(calls_counted(server) for _ in range(5))

    with calling(server.port) as tally:
        kill_three()
        until(lambda: tally.made >= 300, what="calls")

    assert tally.lost == []
    assert tally.tried_again > 0
    assert counted == sorted(counted)
    # A worker that is killed may have answered what it did not count yet, and counted what did not arrive.
    assert abs(calls_counted(server) - len(tally.taken_s)) <= 3 * 4
    assert server.end() == 0


def test_a_large_batch_at_work_is_finished_before_the_end(serve: Serve, bundles: Path) -> None:
    server = serve(bundles, workers=2, drain_s=1)
    call = urllib.request.Request(server.url + "/v1/recommendations", body_of("big", jobs=10_000), method="POST")
    call.add_header("content-type", "application/json")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(_answered, call)
        until(lambda: any(cpu_share(pid) for pid in server.workers()), what="the batch at work")
        at_work = not answer.done()
        server.process.send_signal(signal.SIGTERM)
        status, jobs = answer.result()

    assert at_work
    assert (status, jobs) == (200, 10_000)
    assert server.end() == 0


def test_without_a_model_it_starts_says_so_and_takes_one_when_it_comes(
    serve: Serve, tmp_path: Path, small_bundles: dict[str, Path]
) -> None:
    server = serve(tmp_path / "bundles", reload_every_s=0.2)
    status, said = server.get("/readyz")

    Folder(tmp_path / "bundles", small_bundles).add("runtime.pai.ctr", "1")
    until(lambda: server.get("/readyz")[0] == 200, what="/readyz 200")

    assert (status, json.loads(said)["status"]) == (503, "no model")
    assert any(line.startswith("serving no model yet") for line in server.messages())


def test_the_sync_process_comes_back_and_ends_with_its_parent_even_when_that_is_killed(
    serve: Serve, bundles: Path, tmp_path: Path
) -> None:
    server = serve(bundles, tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    [sync] = [pid for pid in server.children() if b"server.environment" in command_of(pid)]

    os.kill(sync, signal.SIGKILL)
    until(
        lambda: any(b"server.environment" in command_of(pid) for pid in server.children() if pid != sync),
        what="a sync process",
    )
    ready = server.get("/readyz")[0]
    children = server.children()
    assert [line for line in server.errors if not line.startswith("{")] == []
    server.process.kill()

    assert ready == 200
    assert len(children) == 2
    until(lambda: not any(alive(pid) for pid in children), what="the children's end")


def test_a_store_that_cannot_be_opened_ends_it_with_a_line(serve: Serve, bundles: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"no database" * 1000)

    server = serve(bundles, ready=False, store=f"sqlite:///{tmp_path / 'junk.db'}")

    assert server.process.wait(timeout=30) == 1
    until(lambda: any("no worker started" in line for line in server.errors), what="the reason")
    assert any(line.startswith("worker 0: ") and "not a database" in line for line in server.messages())
    assert not any("Traceback" in line for line in server.errors)


def test_a_worker_that_restarts_opens_no_other_store_than_the_others_hold(
    serve: Serve, bundles: Path, tmp_path: Path
) -> None:
    server = serve(bundles, workers=2)
    store = tmp_path / "serve.db"
    until(lambda: len(server.workers()) == 2 and all(holds(pid, store) for pid in server.workers()), what="workers")
    store.rename(tmp_path / "gone.db")

    os.kill(server.workers()[0], signal.SIGKILL)
    until(lambda: any("store: found" in line for line in server.messages()), what="the reason")

    found = {(server.get("/readyz")[0], server.get("/v1/mode")[0]) for _ in range(20)}
    assert found == {(503, 503)}
    assert not store.exists()


def holds(pid: int, file: Path) -> bool:
    """Return whether a process has a file open."""
    with contextlib.suppress(FileNotFoundError):  # one that is closed meanwhile
        return any(each.readlink() == file for each in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _answered(call: urllib.request.Request) -> tuple[int, int]:
    with urllib.request.urlopen(call, timeout=60) as answer:
        return answer.status, len(json.loads(answer.read())["recommendations"])


def cpu_share(pid: int) -> bool:
    """Tell whether a process is running at this moment."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "R"


def calls_counted(server: Running) -> float:
    status, page = server.get("/metrics", timeout_s=60)  # no worker may be ready when two were killed in a row
    assert status == 200
    pattern = r'^taut_requests_total\{.*route="/v1/predictions".*\} (\S+)$'
    return sum(float(value) for value in re.findall(pattern, page, re.MULTILINE))


class proxy:  # noqa: N801  # a context manager that reads as a function
    """The example nginx.conf, before replicas on other ports, on a port of its own."""

    def __init__(self, nginx: str, folder: Path, replicas: list[int]) -> None:
        self.port = free_port()
        text = (ROOT / "deploy" / "nginx.conf").read_text()
        for named, port in zip(
            ("127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8080"), [*replicas, self.port], strict=True
        ):
            assert text.count(named) == 1
            text = text.replace(named, f"127.0.0.1:{port}")
        self.folder = folder / "nginx"
        self.folder.mkdir()
        (self.folder / "nginx.conf").write_text(text)
        self.command = [nginx, "-p", str(self.folder), "-c", "nginx.conf", "-g", "daemon off;"]

    def __enter__(self) -> int:
        import socket

        self.process = subprocess.Popen(self.command, cwd=self.folder)

        def listens() -> bool:
            assert self.process.poll() is None
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(listens, what="nginx")
        return self.port

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)

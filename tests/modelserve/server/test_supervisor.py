"""The parent: workers come back, nobody is orphaned, an end in order is exit 0, a worker that cannot start ends it."""

import os
import signal
import socket
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest

from modelserve.server.supervisor import FIRST_PAUSE_S, pause_after
from tests.modelserve.server.running import Running, alive, until

Start = Callable[..., Running]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_parent_killed_takes_its_workers_with_it(launch: Start, workers: int) -> None:
    server = launch(workers=workers)
    children = server.children()

    server.process.kill()

    assert len(children) == workers
    until(lambda: not any(alive(pid) for pid in children), what="the workers' end")


@pytest.mark.slow
def test_totals_outlive_the_worker_that_counted_them_and_its_presence_does_not(launch: Start, tmp_path: Path) -> None:
    server = launch(workers=2, environment={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics")})
    for _ in range(20):
        server.get("/pid")
    [victim, _] = server.workers()

    os.kill(victim, signal.SIGKILL)
    seen = [_metric(server, "taut_calls_total") for _ in range(20)]
    until(lambda: victim not in server.workers() and _metric(server, "taut_live") == 2, what="a new worker")
    files = len(list((tmp_path / "metrics").glob("counter_*.db")))
    server.get("/pid")

    assert seen == [20] * 20
    assert _metric(server, "taut_calls_total") == 21
    assert files == 2


def test_workers_that_cannot_start_end_the_server_with_one_line(launch: Start) -> None:
    server = launch(ready=False, environment={"STANDIN_BREAKS": "yes"})

    assert server.process.wait(timeout=20) == 1
    until(lambda: any("no worker started" in line for line in server.errors), what="the reason")


def test_an_address_that_is_taken_is_said(launch: Start) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = launch(ready=False, port=other.getsockname()[1])

        assert server.process.wait(timeout=20) == 1
    until(lambda: any("cannot listen on 127.0.0.1" in line for line in server.errors), what="the reason")


def test_it_says_where_it_listens_what_it_serves_and_that_tokens_are_off(launch: Start) -> None:
    server = launch()

    assert any(line.startswith("listening on http://127.0.0.1:") for line in server.said)
    assert any("tokens are OFF" in line for line in server.said)
    assert "serving runtime.pai.ctr@7" in server.said


@pytest.mark.parametrize(("ran_s", "pauses"), [(20.0, [1, 1, 1, 1]), (1.0, [1, 2, 4, 8])])
def test_only_a_process_that_ends_soon_waits_longer_each_time(ran_s: float, pauses: list[int]) -> None:
    found = list(accumulate(pauses, lambda pause_s, _: pause_after(pause_s, ran_s=ran_s), initial=0.0))[1:]

    assert found == pytest.approx([FIRST_PAUSE_S * times for times in pauses])


def test_a_terminal_sends_no_interrupt_to_the_workers(launch: Start) -> None:
    server = launch()

    assert {os.getpgid(pid) for pid in server.workers()}.isdisjoint({os.getpgid(server.process.pid)})


def test_the_parent_imports_no_server_and_no_model() -> None:
    import subprocess
    import sys

    code = "import sys, modelserve.server; print([m for m in ('uvicorn', 'numpy', 'fastapi') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"


def _metric(server: Running, name: str) -> float:
    [value] = [line.split()[-1] for line in server.get("/metrics")[1].splitlines() if line.startswith(name + " ")]
    return float(value)

"""Processes that are measured: started on one core with a free port, waited for, weighed, and ended by their id."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from tests.benchmarks.harness import UNSEEN_S

SERVER_CORE: Final = 0
CLIENT_CORE: Final = 1
READY_LIMIT_S: Final = 120.0
END_LIMIT_S: Final = 20.0
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that answered its readiness path, and how long it took from its start until then."""

    name: str
    pid: int
    url: str
    ready_s: float
    log: Path


def free_port() -> int:
    """Return a free port of the loopback address below those that connections of clients take at random."""
    for port in random.sample(range(20_000, 32_000), 1000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port from 20000 to 31999")


@contextmanager
def served(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    ready: str,
    scratch: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server pinned to `SERVER_CORE` until the block ends; `ready` is a path that answers 200 once it can."""
    log = scratch / f"{name}.log"
    place = {**os.environ, **ONE_THREAD, **(env or {})}
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        start = time.perf_counter()
        pinned = ["taskset", "--cpu-list", str(SERVER_CORE), *command]
        process = subprocess.Popen(pinned, stdout=out, stderr=out, env=place, start_new_session=True)
        try:
            _wait(process, name, url + ready, log)
            taken = time.perf_counter() - start
            yield Server(name=name, pid=process.pid, url=url, ready_s=taken, log=log)
        finally:
            _end(process)


def weights(pid: int) -> list[tuple[str, float]]:
    """Return the command and the resident MiB of a process and of every process below it, the process first."""
    weights = []
    for each in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # It ended in between.
            weights.append((" ".join(each.cmdline()), each.memory_info().rss / 2**20))
    return weights


def cpu_s(pid: int) -> float:
    """Return the processor time that a process and every process below it have taken, in seconds."""
    spent = 0.0
    for each in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += sum(each.cpu_times()[:2])
    return spent


def _family(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def _wait(process: subprocess.Popen[bytes], name: str, url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"{name} ended with {process.returncode} before it was ready; its log ends:\n{_tail(log)}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.005)
    raise SystemExit(f"{name} was not ready within {READY_LIMIT_S:.0f} s at {url}; its log ends:\n{_tail(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the session that was started for the process, and with it what the process started in turn."""
    spent, told = cpu_s(process.pid), sum(os.times()[2:4])
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    UNSEEN_S.append(max(spent - (sum(os.times()[2:4]) - told), 0.0))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])

"""Processes that are measured: started on one core with a free port, waited for, weighed, and ended by their id.

What is started is the caller's to say. Called by every part of the serving benchmarks.
"""

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

SERVER_CORE: Final = 0
CLIENT_CORE: Final = 1
READY_LIMIT_S: Final = 120.0
END_LIMIT_S: Final = 20.0
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
_KIB_PER_MIB: Final = 1024
_UNTOLD_S: Final[list[float]] = []
"""Processor time of servers that the system does not tell us of, since their own parent ended before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that answered its readiness path, and how long it took from its start until then."""

    name: str
    pid: int
    url: str
    ready_s: float
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Memory of one process: resident, and its share of what it shares."""

    pid: int
    what: str
    rss_mib: float
    pss_mib: float


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
    core: int = SERVER_CORE,
) -> Iterator[Server]:
    """Run a server pinned to a core until the block ends; `ready` is the path that says 200 when it can answer.

    Raises
    ------
    SystemExit
        It ended, or was not ready in time; the end of its log is told.
    """
    log = scratch / f"{name}.log"
    place = {**os.environ, **ONE_THREAD, **(env or {})}
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *command], stdout=out, stderr=out, env=place, start_new_session=True
        )
        try:
            _wait(process, name, url + ready, log)
            taken = time.perf_counter() - start
            yield Server(name=name, pid=process.pid, url=url, ready_s=taken, log=log)
        finally:
            _end(process)


def weights(pid: int) -> list[Weight]:
    """Return the memory of a process and of every process below it, the process first."""
    found = []
    for each in [pid, *below(pid)]:
        try:
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
            what = Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended in between.
        kib = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
        found.append(Weight(pid=each, what=what, rss_mib=kib["Rss"] / _KIB_PER_MIB, pss_mib=kib["Pss"] / _KIB_PER_MIB))
    return found


def cpu_s(pid: int) -> float:
    """Return the processor time that a process and every process below it have taken, in seconds."""
    ticks = 0
    for each in [pid, *below(pid)]:
        try:
            said = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended in between.
        ticks += int(said[11]) + int(said[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Others:
    """What the machine does besides this benchmark, from when it is made."""

    def __init__(self) -> None:
        self._start = self._now()

    def share(self) -> float:
        """Return the share of the machine that others have taken since; a few hundredths are a quiet machine."""
        taken, busy, own = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(busy - own, 0.0) / taken / (os.cpu_count() or 1)

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), _busy_s(), _own_s()


def _busy_s() -> float:
    user, nice, system, _, _, irq, softirq, steal = (int(n) for n in Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Return the processor time of this process and of all that it started and that has ended."""
    return sum(os.times()[:4]) + sum(_UNTOLD_S)


def below(pid: int) -> list[int]:
    """Return the ids of all processes that descend from one."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children += [int(child) for child in task.read_text().split()]
    return [each for child in children for each in (child, *below(child))]


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
    _UNTOLD_S.append(max(spent - (sum(os.times()[2:4]) - told), 0.0))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])

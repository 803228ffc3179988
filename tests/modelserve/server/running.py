"""Running servers: real processes on free ports of the loopback, ended by their own id."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
DEADLINE_S = 60.0


def until(true: Callable[[], object], *, within_s: float = DEADLINE_S, what: str = "it") -> None:
    """Wait for something to become true, looking often."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {within_s} s"
        time.sleep(0.02)


@dataclass
class Running:
    """A server in a process of its own, and the lines that it said: plain on stdout, or JSON log lines on stderr."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        [line] = [line for line in self.messages() if line.startswith("listening on ")]
        return line.removeprefix("listening on ")

    def messages(self) -> list[str]:
        logged = [json.loads(line) for line in list(self.errors) if line.startswith("{")]
        return [*self.said, *(line["message"] for line in logged if "message" in line)]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in found]

    def workers(self) -> list[int]:
        return [pid for pid in self.children() if b"standin.py" in command_of(pid) or b".worker" in command_of(pid)]

    def worker_pids_answering(self, calls: int = 40) -> set[int]:
        return {json.loads(self.get("/pid")[1])["pid"] for _ in range(calls)}

    def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = DEADLINE_S) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=within_s)


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def start(command: list[str], environment: dict[str, str]) -> Running:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    running = Running(process)
    for stream, lines in ((process.stdout, running.said), (process.stderr, running.errors)):
        threading.Thread(target=_collect, args=(stream, lines), daemon=True).start()
    return running


def _collect(stream: Iterator[str], lines: list[str]) -> None:
    with contextlib.suppress(ValueError):
        for line in stream:
            lines.append(line.rstrip("\n"))


def check_serving(one: Running) -> None:
    def there() -> bool:
        assert one.process.poll() is None, f"ended with {one.process.returncode}: {one.errors}"
        return any(line.startswith("serving ") for line in one.messages())

    until(there, what="serving")


def stop(one: Running) -> None:
    """End a server and, whatever became of it, the workers that it had."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        one.end(within_s=10)
    if one.process.poll() is None:
        one.process.kill()
        one.process.wait(timeout=10)
    for stream in (one.process.stdout, one.process.stderr):
        stream.close()

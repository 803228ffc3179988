"""Agents that answer the plugin well, wrongly, slowly or not at all, and a real one in a process of its own."""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipelines.connect.slurm.running import until

Act = Callable[[socket.socket], None]
ROOT = Path(__file__).resolve().parents[4]
GOOD = (
    b"cpus_per_task=2\nmin_cpus=2\npn_min_cpus=2\nmin_mem_per_node=512\nadmin_comment=taut a-1 x\nmessage=hi\nend=1\n"
)
OVER = threading.Event()


def saying(answer: bytes) -> Act:
    return lambda connection: connection.sendall(answer)


def dripping(connection: socket.socket) -> None:
    for each in GOOD:
        connection.sendall(bytes([each]))
        if OVER.wait(0.02):
            return


def late(connection: socket.socket) -> None:
    if not OVER.wait(1.0):
        connection.sendall(GOOD)


def endless(connection: socket.socket) -> None:
    for _ in range(64):
        connection.sendall(b"x" * 2**20)


FAULTS: dict[str, Act] = {
    "late": late,
    "drips": dripping,
    "garbage": saying(os.urandom(200)),
    "64 MB": endless,
    "HTTP 500": saying(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}"),
    "closes": saying(b""),
    "killed mid-answer": saying(GOOD[:-8]),
    "absurd": saying(b"cpus_per_task=999\nmin_cpus=999\nmin_mem_per_node=99999999\nend=1\n"),
    "zeros": saying(b"cpus_per_task=0\nmin_cpus=0\nmin_mem_per_node=0\nend=1\n"),
    "negative": saying(b"min_mem_per_node=-1\nend=1\n"),
    "not asked for": saying(b"min_mem_per_cpu=10\nend=1\n"),
    "CPUs of a task alone": saying(b"cpus_per_task=1\nend=1\n"),
    "CPUs by another factor": saying(b"cpus_per_task=2\nmin_cpus=1\nend=1\n"),
    "no number": saying(b"min_cpus=nan\nend=1\n"),
}
SLOW = {"late", "drips"}
"""Faults that the plugin's deadline ends."""


@contextmanager
def fake_agent(path: Path, act: Act) -> Iterator[list[bytes]]:
    """Listen at a Unix socket; yield the requests that came, each of which is answered by `act`."""
    OVER.clear()
    path.unlink(missing_ok=True)
    came: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))
        listening.listen(64)

        def one(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                connection.settimeout(5)
                request = b""
                while not request.endswith(b"\n\n") and (some := connection.recv(65_536)):
                    request += some
                came.append(request)
                act(connection)

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield came
        finally:
            OVER.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            path.unlink(missing_ok=True)


def settings_text(address: str, **more: str | int) -> str:
    lines = {"cluster": "taut", "mode": "enforce", **more}
    return "\n".join(
        [f'services = ["{address}"]', *(f"{name} = {json.dumps(value)}" for name, value in lines.items()), ""]
    )


def agent_command(config: Path, path: Path) -> tuple[str, ...]:
    """Return the command of a real agent."""
    code = "from pipelines.cli import main; main()"
    return (sys.executable, "-c", code, "slurm", "agent", "--config", str(config), "--socket", str(path))


def wait_for_socket(path: Path) -> None:
    def there() -> bool:
        with socket.socket(socket.AF_UNIX) as trial, contextlib.suppress(OSError):
            trial.connect(os.fspath(path))
            return True
        return False

    until(there, within_s=30, what="the agent's socket")

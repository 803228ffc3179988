"""One child process of the server: start it, read its messages, send it signals, and restart it if it dies.

The current time is an argument (`now`, in seconds of a monotonic clock). Called by `modelserve.server.supervisor`.
"""

import json
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 10.0
"""Run time in seconds above which a dead process restarts after `FIRST_PAUSE_S`.

After shorter runs, the pause before each restart is twice the last one, up to `LONGEST_PAUSE_S`.
"""

HUNG_S: Final = 60.0
"""Seconds of silence after which a process that has sent a sign of life before counts as hanging."""

CHUNK_BYTES: Final = 65_536
TOLD_LIMIT_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Start parameters of a child: name in the log, command, environment, and file descriptors that it inherits."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    files: tuple[int, ...] = ()


class Child:
    """A child process that can be started again: its start parameters and its current process, if one runs.

    `told` is the ready message of the current process, or None before it; `ever_ready` whether any process sent one.
    """

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.told: Mapping[str, object] | None = None
        self.ever_ready = False
        self.due_at: float | None = 0.0
        """Time at which to start the process; None while it runs."""
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._heard = b""
        self._heard_at: float | None = None
        self._started_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    @property
    def end(self) -> socket.socket:
        """The parent's end of the pipe to the current process."""
        if self._end is None:
            raise RuntimeError(f"{self.duty.name} does not run")
        return self._end

    @property
    def pid(self) -> int | None:
        """The id of the current process, or None if none runs."""
        return self._process.pid if self._process else None

    def start(self, now: float) -> socket.socket:
        """Start the process; return the parent's end of the pipe, which reports end of file when the process ends."""
        self._end, theirs = socket.socketpair()
        self._end.setblocking(False)
        # The child inherits the mask: Ctrl+C goes to all processes of a terminal, and the parent ends its children.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and modules
                    self.duty.command, stdin=theirs.fileno(), env=self.duty.environment, pass_fds=self.duty.files
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._heard, self._heard_at, self._started_at = b"", None, now
        self.told, self.due_at = None, None
        return self._end

    def hear(self, now: float) -> bool:
        """Read the messages that the process has sent; return False if it has closed its pipe."""
        if self._end is None:
            return False
        try:
            data = self._end.recv(CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._heard_at = now
        *lines, rest = (self._heard + data).split(b"\n")
        self._heard = rest[:TOLD_LIMIT_BYTES]
        for line in filter(None, lines):
            self.told, self.ever_ready = json.loads(line), True
        return bool(data)

    def hangs(self, now: float) -> bool:
        """Return whether the process has sent messages before, but none for `HUNG_S`."""
        return self._heard_at is not None and now - self._heard_at > HUNG_S

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal; do nothing if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def bury(self, now: float) -> int:
        """Wait for a process whose pipe has closed, set the time of its restart, and return its exit code.

        A process that closed its pipe but still runs is killed: it would not notice the supervisor's end.
        """
        process, end = self._process, self.end
        if process is None:
            raise RuntimeError(f"{self.duty.name} does not run")
        try:
            code = process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        end.close()
        self._process = self._end = None
        if now - self._started_at > STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        self.due_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return code

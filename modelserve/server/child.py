"""One child process of the server: started, heard, asked to end, and started again when it ended by itself.

Why it runs is the supervisor's business; times are given, never read. Called by `modelserve.server.supervisor`.
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
STEADY_S: Final = 60.0
"""A process that lived this long starts again at once; before, the pause doubles with every end."""

HUNG_S: Final = 60.0
"""A process that had begun to say that it lives, and says nothing for this long, hangs."""

CHUNK_BYTES: Final = 65_536
TOLD_LIMIT_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What a child is started as: a name for the log, the command, its environment, the files it inherits."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    files: tuple[int, ...] = ()


class Child:
    """A duty and the process that does it now, if there is one."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.told: Mapping[str, object] | None = None
        self.ever_ready = False
        self.due_at: float | None = 0.0
        """When it is to be started (again); None while it runs, and once it is not wanted any more."""
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._heard = b""
        self._heard_at: float | None = None
        self._started_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    @property
    def end(self) -> socket.socket:
        """Return our end of the tether of the process that runs now."""
        if self._end is None:
            raise RuntimeError(f"{self.duty.name} does not run")
        return self._end

    @property
    def pid(self) -> int | None:
        """Return the process that runs now, or None."""
        return self._process.pid if self._process else None

    def start(self, now: float) -> socket.socket:
        """Start the process; return our end of its tether, which ends when the process does."""
        self._end, theirs = socket.socketpair()
        self._end.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and modules
                self.duty.command, stdin=theirs.fileno(), env=self.duty.environment, pass_fds=self.duty.files
            )
        self._heard, self._heard_at, self._started_at = b"", None, now
        self.told, self.due_at = None, None
        return self._end

    def hear(self, now: float) -> bool:
        """Take in what the process said; False once it has ended."""
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
        """Tell whether a process that used to say that it lives has fallen silent."""
        return self._heard_at is not None and now - self._heard_at > HUNG_S

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal; one that has ended is left in peace."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def bury(self, now: float) -> int:
        """Wait for a process whose tether ended, settle when it starts again, and return how it ended.

        A process that closed its tether and lives on is killed: nothing would end it with us.
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

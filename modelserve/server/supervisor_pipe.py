"""The supervisor pipe: a socket as standard input, between a child process and the supervisor that started it.

The child writes there that it is alive. When the supervisor is gone, kill -9 included, the socket closes and the child
ends. Opened by the worker and the mirroring process.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from typing import Final

BEAT: Final = b"\n"
"""A beat is an empty line; the one other line is JSON."""

STDIN: Final = 0


class SupervisorPipe:
    """The child's end of the pipe; `hold` opens and watches it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def hold(cls, *, end_within_s: float) -> "SupervisorPipe":
        """Watch the parent: when it is gone, send SIGTERM to this process, and exit within `end_within_s`."""
        pipe = cls(socket.socket(fileno=os.dup(STDIN)))
        # A thread, so that a process with a hanging event loop ends too.
        threading.Thread(target=pipe._watch, args=(end_within_s,), name="supervisor-pipe", daemon=True).start()
        return pipe

    def beat(self) -> None:
        """Send a sign of life to the parent; never blocks."""
        self._send(BEAT)

    def ready(self, facts: Mapping[str, object]) -> None:
        """Report to the parent that this process is ready, with facts about the loaded models."""
        self._send(json.dumps(facts).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent is busy or gone; `_watch` handles the latter
            self._end.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _watch(self, end_within_s: float) -> None:
        with contextlib.suppress(OSError):  # a reset counts as the end
            while self._end.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_within_s)
        os._exit(1)

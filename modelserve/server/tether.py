"""What ties a child process to the parent that started it: a socket as its standard input.

The child says there that it lives; when the parent is gone, kill -9 included, the socket ends and the child with it.
Called by the processes that `modelserve.server.supervisor` starts.
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
"""An empty line; any other line is JSON, said once."""

STDIN: Final = 0


class Tether:
    """The child's end; `hold` starts to watch it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def hold(cls, *, end_within_s: float) -> "Tether":
        """Watch the parent: once it is gone, ask this process to end, and end it `end_within_s` later at the latest."""
        tether = cls(socket.socket(fileno=os.dup(STDIN)))
        # A thread, so that a process whose event loop hangs ends as well.
        threading.Thread(target=tether._watch, args=(end_within_s,), name="tether", daemon=True).start()
        return tether

    def beat(self) -> None:
        """Say that this process is alive; a parent that is slow to listen is not waited for."""
        self._send(BEAT)

    def tell(self, facts: Mapping[str, object]) -> None:
        """Say that this process is ready, and what it found."""
        self._send(json.dumps(facts).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent is busy or gone; `_watch` sees to the latter
            self._end.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _watch(self, end_within_s: float) -> None:
        with contextlib.suppress(OSError):  # a reset is an end, too
            while self._end.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_within_s)
        os._exit(1)

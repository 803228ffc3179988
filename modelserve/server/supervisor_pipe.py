"""The supervisor pipe: a socket between a child process and the supervisor, passed as the child's standard input.

The child writes signs of life to it. When the supervisor ends, even by kill -9, the socket closes and the child ends
too. Opened by the worker and the sync process.
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
"""A sign of life: an empty line. The only other message is a line of JSON, sent when the child is ready."""

STDIN: Final = 0


class SupervisorPipe:
    """The child's end of the supervisor pipe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def hold(cls, *, end_within_s: float) -> "SupervisorPipe":
        """Open the pipe and watch it in a thread.

        When the parent ends, SIGTERM is sent to this process, which exits after `end_within_s` at the latest.
        """
        pipe = cls(socket.socket(fileno=os.dup(STDIN)))
        # Watch in a thread, so that the process ends even if its event loop hangs.
        threading.Thread(target=pipe._watch, args=(end_within_s,), name="supervisor-pipe", daemon=True).start()
        return pipe

    def beat(self) -> None:
        """Send a sign of life to the parent; never blocks."""
        self._send(BEAT)

    def ready(self, facts: Mapping[str, object]) -> None:
        """Report to the parent that this process is ready; `facts` names the loaded models and failures."""
        self._send(json.dumps(facts).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent is busy or has ended; `_watch` handles its end
            self._end.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _watch(self, end_within_s: float) -> None:
        with contextlib.suppress(OSError):  # a reset connection means that the parent has ended
            while self._end.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_within_s)
        os._exit(1)

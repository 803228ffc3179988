"""The child's end of the supervisor pipe: a socket between a child process and the supervisor, as standard input.

The child sends signs of life (empty lines) and one line of JSON when it is ready. When the supervisor ends, even by
kill -9, the socket closes and the child ends too.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable


def follow_supervisor(*, end_within_s: float) -> Callable[[bytes], None]:
    """Watch the pipe in a thread; return a function that sends data to the supervisor and never blocks.

    When the supervisor ends, SIGTERM is sent to this process, which exits after `end_within_s` at the latest, even if
    its event loop hangs.
    """
    pipe = socket.socket(fileno=os.dup(0))

    def watch() -> None:
        with contextlib.suppress(OSError):  # a reset connection means that the parent has ended
            while pipe.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_within_s)
        os._exit(1)

    def send(data: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent is busy or has ended
            pipe.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    threading.Thread(target=watch, name="supervisor-pipe", daemon=True).start()
    return send

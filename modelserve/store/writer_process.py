"""Write logged answers in a separate process, one for each worker, so that writing never holds up an answer.

When to write is decided in `answer_log`, how in `answer_writing`. Started by the answer log as
`python -m modelserve.store.writer_process`.
"""

import contextlib
import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from modelserve.background import give_way
from modelserve.errors import StoreError
from modelserve.store import Store
from modelserve.store.answer_writing import StoreWriter
from modelserve.store.answers import AnswerRow

__all__ = ["WriterProcess"]

COMMAND: Final = (sys.executable, "-m", "modelserve.store.writer_process")
RESTART_S: Final = 1.0
"""Shortest time between two starts of the process."""
SILENT_S: Final = 60.0
"""A process that is silent for this long hangs; longer than any wait for the store."""
END_S: Final = 5.0
"""Longest wait for the process to exit."""

_LENGTH: Final = struct.Struct("<Q")


class WriterProcess:
    """Write through a separate process, restarted if it dies; use it from one thread at a time."""

    def __init__(self, url: str, kept: int, kept_bytes: int) -> None:
        self._told = (url, kept, kept_bytes)
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._ready = False
        self._started_at = -RESTART_S

    @property
    def pid(self) -> int | None:
        """Return the id of the process, or None."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process without waiting until it is ready."""
        self._started_at = time.monotonic()
        self._end, theirs = socket.socketpair()
        self._end.settimeout(SILENT_S)
        with theirs:
            self._process = subprocess.Popen(COMMAND, stdin=theirs.fileno())  # noqa: S603  # our own interpreter and module
        # Sent over the socket: the store's URL may hold a password, which command lines and environments expose.
        _send(self._end, self._told)
        self._ready = False

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Write answers; if the process dies, a new one retries, and writes are idempotent.

        Raises
        ------
        StoreError
            They were not written.
        """
        try:
            reply = self._asked(rows)
        except (OSError, EOFError):
            self._bury()
            try:
                reply = self._asked(rows)
            except (OSError, EOFError) as error:
                self._bury()
                raise StoreError("store: the process that logs answers ended twice; see its messages above") from error
        if reply:
            raise StoreError(reply)

    def stop(self) -> None:
        """End the process after it has written the answers sent to it."""
        if self._end is not None:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_WR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self._bury()

    def _asked(self, rows: Sequence[AnswerRow]) -> str:
        """Send answers and return the process's reply: empty if they are written, otherwise the error."""
        if self._process is None:
            time.sleep(max(0.0, self._started_at + RESTART_S - time.monotonic()))
            self.start()
        if self._end is None:
            raise EOFError
        if not self._ready:
            if refused := str(_received(self._end)):
                self._bury()
                return refused
            self._ready = True
        _send(self._end, rows)
        return str(_received(self._end))

    def _bury(self) -> None:
        process, end = self._process, self._end
        self._process = self._end = None
        if end is not None:
            end.close()
        if process is not None:
            process.kill()
            process.wait()


def _send(end: socket.socket, value: Any) -> None:  # Any: plain values, as `marshal` takes them
    # Both ends are this interpreter, and no other process has the socket.
    data = marshal.dumps(value)
    end.sendall(_LENGTH.pack(len(data)) + data)


def _received(end: socket.socket) -> Any:  # Any: what `_send` was given
    (length,) = _LENGTH.unpack(_exactly(end, _LENGTH.size))
    return marshal.loads(_exactly(end, length))  # noqa: S302  # from our own other end


def _exactly(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = end.recv_into(view[at:])
        if not got:
            raise EOFError
        at += got
    return data


def main() -> None:
    """Write the answers received on standard input until the worker closes it."""
    # Ignore signals sent to the whole group: the worker's last answers are still to come.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    give_way()
    with socket.socket(fileno=os.dup(0)) as end, contextlib.suppress(EOFError, ConnectionError):
        url, kept, kept_bytes = _received(end)
        try:
            store = Store.open(url)
        except StoreError as error:
            _send(end, str(error))
            return
        with closing(store):
            # Niceness limits the share of processor time but not the length of a turn: without yielding, calls on the
            # same processor would wait a millisecond or more.
            writer = StoreWriter(store, kept, kept_bytes, between=os.sched_yield)
            _send(end, "")
            while True:
                _send(end, _written(writer, _received(end)))


def _written(writer: StoreWriter, rows: Sequence[AnswerRow]) -> str:
    try:
        writer.write(rows)
    except StoreError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()

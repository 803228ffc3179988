"""Write the answer log in a separate process, one for each worker, so that writing never delays an answer.

`answer_log` decides when to write; the process writes with `answer_writing`. Started by the answer log as
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

COMMAND: Final = (sys.executable, "-P", "-m", "modelserve.store.writer_process")
RESTART_S: Final = 1.0
"""Minimum seconds between two starts of the process."""
SILENT_S: Final = 60.0
"""Seconds without a reply after which the process counts as hanging; longer than any wait for the store."""
END_S: Final = 5.0
"""Longest wait in seconds for the process to exit."""

_LENGTH: Final = struct.Struct("<Q")


class WriterProcess:
    """A writer that sends records to a separate process, restarted if it dies; for one thread at a time."""

    def __init__(self, url: str, kept: int, kept_bytes: int) -> None:
        self._told = (url, kept, kept_bytes)
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._ready = False
        self._started_at = -RESTART_S

    @property
    def pid(self) -> int | None:
        """The id of the process, or None if none runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process without waiting until it is ready."""
        self._started_at = time.monotonic()
        self._end, theirs = socket.socketpair()
        self._end.settimeout(SILENT_S)
        with theirs:
            self._process = subprocess.Popen(COMMAND, stdin=theirs.fileno())  # noqa: S603  # our own interpreter and module
        # Sent over the socket, since the store's URL may hold a password, which a command line would expose.
        _send(self._end, self._told)
        self._ready = False

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Write records; if the process dies, send them once more to a new process.

        Records that the first process had stored are skipped by the second.

        Raises
        ------
        StoreError
            The records were not written.
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
        """End the process after it has written the records sent to it."""
        if self._end is not None:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_WR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self._bury()

    def _asked(self, rows: Sequence[AnswerRow]) -> str:
        """Send records and return the process's reply: "" if they are written, otherwise the error."""
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


def _send(end: socket.socket, value: Any) -> None:  # Any: plain values, which `marshal` accepts
    # `marshal` is safe here: both ends run the same Python, and no other process has the socket.
    data = marshal.dumps(value)
    end.sendall(_LENGTH.pack(len(data)) + data)


def _received(end: socket.socket) -> Any:  # Any: the value passed to `_send`
    (length,) = _LENGTH.unpack(_exactly(end, _LENGTH.size))
    return marshal.loads(_exactly(end, length))  # noqa: S302  # sent by the other end of this module


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
    """Write the records received on standard input until the worker closes it."""
    # Ignore signals sent to the whole process group, since the worker will still send its last records.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    give_way()
    with socket.socket(fileno=os.dup(0)) as end, contextlib.suppress(EOFError, ConnectionError):
        url, kept, kept_bytes = _received(end)
        try:
            store = Store.open(url, create=False)
        except StoreError as error:
            _send(end, str(error))
            return
        with closing(store):
            # Yield the CPU after each statement: niceness limits the share of CPU time but not the length of a time
            # slice, so calls on the same core would otherwise wait a millisecond or more.
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

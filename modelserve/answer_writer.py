"""Answers written: batches into the store, which is pruned to the newest, by this process or by one of its own.

What is inside an answer, and when it is written, is `modelserve.answer_log`'s. Called by it, and run as
`python -m modelserve.answer_writer` beside each worker: whoever writes shares no interpreter with whoever answers.
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
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final, Protocol

from modelserve.background import give_way
from modelserve.errors import StoreError
from modelserve.store import Store
from modelserve.store.answers import AnswerRow, prune_answers, write_rows
from modelserve.store.tally import Tally

PRUNE_EVERY: Final = 1000
"""Records written between two prunings: so far the log may grow beyond what is kept, for each worker."""
PRUNE_EVERY_BYTES: Final = 64 * 2**20
"""What is written between two prunings at most; the same is true of it."""

COMMAND: Final = (sys.executable, "-m", "modelserve.answer_writer")
RESTART_S: Final = 1.0
"""A process that ended is started again, but not more often than this: answers wait so long."""
SILENT_S: Final = 60.0
"""A process that says nothing for this long hangs: longer than the store keeps anybody waiting."""
END_S: Final = 5.0
"""Longest that a process is waited for that has nothing left to write."""

_LENGTH: Final = struct.Struct("<Q")


class Writer(Protocol):
    """Whoever writes answers."""

    def start(self) -> None:
        """Get ready to write."""

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Write answers; once it returns they are stored. Raises `StoreError` where they are not."""

    def stop(self) -> None:
        """Let go of what it writes with."""


class StoreWriter:
    """Writes into an open store, and prunes it now and then; `between` is called often while it writes."""

    def __init__(
        self, store: Store, kept: int, kept_bytes: int, *, between: Callable[[], object] = lambda: None
    ) -> None:
        self._store, self._kept, self._kept_bytes, self._between = store, kept, kept_bytes, between
        self._unpruned = self._unpruned_bytes = 0
        self._tally = Tally()

    def start(self) -> None:
        """Do nothing: the store is open."""

    def stop(self) -> None:
        """Do nothing: the store is another's to close."""

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Write answers in one transaction.

        Raises
        ------
        StoreError
            None of them was written.
        """
        write_rows(self._store, rows, between=self._between)
        self._unpruned += len(rows)
        self._unpruned_bytes += sum(row[-1] for row in rows)
        few = self._unpruned < min(PRUNE_EVERY, self._kept)
        if few and self._unpruned_bytes < min(PRUNE_EVERY_BYTES, self._kept_bytes):
            return
        self._unpruned = self._unpruned_bytes = 0
        with contextlib.suppress(StoreError):  # the next time will do
            prune_answers(self._store, self._kept, self._kept_bytes, tally=self._tally)


class WriterProcess:
    """Writes through a process of its own, started again where it ended; to be used by one thread at a time."""

    def __init__(self, url: str, kept: int, kept_bytes: int) -> None:
        self._told = (url, kept, kept_bytes)
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._ready = False
        self._started_at = -RESTART_S

    @property
    def pid(self) -> int | None:
        """Return the process that writes, or None."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, and do not wait until it can write."""
        self._started_at = time.monotonic()
        self._end, theirs = socket.socketpair()
        self._end.settimeout(SILENT_S)
        with theirs:
            self._process = subprocess.Popen(COMMAND, stdin=theirs.fileno())  # noqa: S603  # our own interpreter and module
        # The store's URL may hold a password, which command lines and environments would show.
        _send(self._end, self._told)
        self._ready = False

    def write(self, rows: Sequence[AnswerRow]) -> None:
        """Have answers written; a process that was killed at it is replaced, and writes them once.

        Raises
        ------
        StoreError
            They were not written.
        """
        try:
            said = self._asked(rows)
        except (OSError, EOFError):
            self._bury()
            try:
                said = self._asked(rows)
            except (OSError, EOFError) as error:
                self._bury()
                raise StoreError("store: the process that logs answers ended twice; its own words are above") from error
        if said:
            raise StoreError(said)

    def stop(self) -> None:
        """End the process; what it was given before is written."""
        if self._end is not None:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_WR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self._bury()

    def _asked(self, rows: Sequence[AnswerRow]) -> str:
        """Return what the process says to answers: nothing where they are written, else why they are not."""
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
    # Both ends are this interpreter, and nobody else has hold of the socket.
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
    """Write what comes in on standard input until it ends, as it does with the worker at its other end."""
    # Ctrl+C and whoever ends a whole group mean the worker: its last answers are still to come.
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
            # Niceness settles who gets how much, not who goes first: a process is let run for a millisecond or more
            # once it runs, and calls on the same processor would wait for it.
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

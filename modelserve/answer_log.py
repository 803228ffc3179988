"""The log of answers: taken without waiting, written in the background in small batches.

It never keeps an answer from its caller: what the store does not take in time is dropped and counted. What a record
holds is its maker's business, and how it is written `modelserve.answer_writer`'s. Called by the service and its routes.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from modelserve.answer_writer import Writer
from modelserve.errors import StoreError
from modelserve.store.answers import AnswerRecord, row_of

__all__ = ["AnswerLog", "AnswerRecord"]

FLUSH_S: Final = 0.2
"""How long records gather before they are written: what a killed worker loses at most, and the price of a transaction
shared by all that came meanwhile. Whoever writes takes processor and caches from those who answer: rarely is better."""
BATCH: Final = 1000
"""Records in one transaction: some milliseconds in which other writers of a file wait."""
WAITING: Final = 8192
"""Records that may wait; then they are dropped."""
WAITING_BYTES: Final = 32 * 2**20
"""What the waiting records may weigh together; a record of ten thousand jobs weighs megabytes."""
BATCH_BYTES: Final = 4 * 2**20
"""What makes a transaction of fewer."""
REFUSED_S: Final = 600.0
"""How long records are held against what is refused: longer than any answer is at work."""
STOP_S: Final = 10.0
"""Longest that stopping waits for the last records."""

logger = logging.getLogger(__name__)


class AnswerLog:
    """A bounded queue before whoever writes, and the one thread that empties it; without a writer nothing is logged."""

    def __init__(self, writer: Writer | None) -> None:
        self._writer = writer
        self._waiting: deque[AnswerRecord] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._refused: tuple[tuple[float, Callable[[AnswerRecord], bool]], ...] = ()
        self.dropped = 0
        self.written = 0

    def put(self, record: AnswerRecord) -> bool:
        """Take a record without waiting; return False where it had to be dropped; without a writer nothing is."""
        if self._writer is None:
            return True
        size = record.size_bytes
        with self._lock:
            if len(self._waiting) >= WAITING or self._bytes + size > WAITING_BYTES or self._stopping.is_set():
                self.dropped += 1
                return False
            self._waiting.append(record)
            self._bytes += size
        if not self._wake.is_set():
            self._wake.set()
        return True

    def start(self) -> None:
        """Start to write; a log that keeps nothing has nothing to start."""
        if self._writer is not None and self._thread is None:
            self._writer.start()
            self._thread = threading.Thread(target=self._run, name="answer-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write what waits, and let the writer go."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None
        self._empty()
        if self._writer is not None:
            self._writer.stop()

    def refuse(self, unwanted: Callable[[AnswerRecord], bool]) -> None:
        """Write no record of which `unwanted` holds, for `REFUSED_S`; once it returns none is on its way any more."""
        now_s = time.monotonic()
        with self._lock:
            held = [each for each in self._refused if each[0] > now_s]
            self._refused = (*held, (now_s + REFUSED_S, unwanted))
        self.flush()

    def flush(self) -> None:
        """Write what was put so far, in the caller's thread; once it returns nothing of that is on its way."""
        self._empty()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._stopping.wait(FLUSH_S)
            self._wake.clear()
            self._empty()

    def _empty(self) -> None:
        with self._writing:
            while batch := self._next():
                self._write(batch)

    def _write(self, taken: Sequence[AnswerRecord]) -> None:
        batch = [record for record in taken if not any(unwanted(record) for _, unwanted in self._refused)]
        if self._writer is None or not batch:
            return
        try:
            self._writer.write([row_of(record) for record in batch])
        except StoreError as error:
            with self._lock:
                self.dropped += len(batch)
            logger.warning("answers were not logged: %s", error, extra={"answers": len(batch)})
            return
        self.written += len(batch)

    def _next(self) -> list[AnswerRecord]:
        batch: list[AnswerRecord] = []
        size = 0
        with self._lock:
            while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
                batch.append(self._waiting.popleft())
                size += batch[-1].size_bytes
            self._bytes -= size
        return batch

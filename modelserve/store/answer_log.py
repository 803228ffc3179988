"""The answer log: a bounded queue of records, which one thread writes to the store in small batches.

Logging never delays an answer: records that do not fit in the queue are dropped and counted. `modelserve.calls` creates
the records, `answer_writing` writes them. Called by the service and `modelserve.api.upkeep`.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from modelserve.errors import StoreError
from modelserve.store.answer_writing import Writer, row_of
from modelserve.store.answers import AnswerRecord

__all__ = ["REFUSED_S", "AnswerLog"]

FLUSH_S: Final = 0.2
"""Seconds for which records are collected before they are written.

A killed worker loses the records of at most this time. A longer time would mean fewer transactions.
"""
BATCH: Final = 1000
"""Maximum number of records in one transaction, for which other writers of an SQLite file wait some milliseconds."""
WAITING: Final = 8192
"""Maximum number of waiting records; further records are dropped."""
WAITING_BYTES: Final = 32 * 2**20
"""Maximum total size of waiting records; further records are dropped. A call with 10,000 jobs takes megabytes."""
BATCH_BYTES: Final = 4 * 2**20
"""Total size of records at which a transaction ends, even with fewer than `BATCH` records."""
REFUSED_S: Final = 600.0
"""Seconds for which `refuse` drops records: longer than any answer takes."""
STOP_S: Final = 10.0
"""Longest wait in seconds for the thread to write the last records."""

logger = logging.getLogger(__name__)


class AnswerLog:
    """A bounded queue, and the thread that passes its records to a writer; without a writer nothing is logged.

    `dropped` and `written` count records.
    """

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
        """Queue a record without waiting; return False if it was dropped. Without a writer, do nothing."""
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
        """Start the writer and the thread; without a writer, do nothing."""
        if self._writer is not None and self._thread is None:
            self._writer.start()
            self._thread = threading.Thread(target=self._run, name="answer-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write the waiting records, and stop the thread and the writer."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None
        self._empty()
        if self._writer is not None:
            self._writer.stop()

    def refuse(self, unwanted: Callable[[AnswerRecord], bool]) -> None:
        """Drop every record for which `unwanted` is true, for `REFUSED_S` from now.

        When this returns, no such record is still being written.
        """
        now_s = time.monotonic()
        with self._lock:
            held = [each for each in self._refused if each[0] > now_s]
            self._refused = (*held, (now_s + REFUSED_S, unwanted))
        self.flush()

    def flush(self) -> None:
        """Write all records queued so far, in the caller's thread, and return when they are written."""
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

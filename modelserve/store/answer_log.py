"""The answer log: a bounded queue of records, which one thread writes to the store in small batches.

Logging never delays an answer: records that do not fit in the queue are dropped and counted.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from modelserve.errors import StoreError
from modelserve.store.answers import AnswerRecord, prune_answers, write_answers
from modelserve.store.store import Store

__all__ = ["AnswerLog"]

FLUSH_S: Final = 0.2
"""Seconds for which records are collected before they are written; a killed worker loses at most these records."""
BATCH: Final = 1000
"""Maximum number of records in one transaction, for which other writers of an SQLite file wait some milliseconds."""
BATCH_BYTES: Final = 4 * 2**20
"""Total size of records at which a transaction ends, even with fewer than `BATCH` records."""
WAITING: Final = 8192
"""Maximum number of waiting records; further records are dropped."""
WAITING_BYTES: Final = 32 * 2**20
"""Maximum total size of waiting records; further records are dropped. A call with 10,000 jobs takes megabytes."""
PRUNE_EVERY: Final = 1000
"""Maximum number of records that a worker writes between two prunings; the log may exceed its limit by as many."""
PRUNE_EVERY_BYTES: Final = 64 * 2**20
"""Maximum bytes that a worker writes between two prunings; the log may exceed its limit by as many."""
STOP_S: Final = 10.0
"""Longest wait in seconds for the thread to write the last records."""

logger = logging.getLogger(__name__)


class AnswerLog:
    """A bounded queue, and the thread that writes its records to the store; nothing is logged if `kept` is 0.

    The oldest records are deleted so that about `kept` records of `kept_bytes` in total remain. `dropped` and `written`
    count records.
    """

    def __init__(self, store: Store, kept: int, kept_bytes: int) -> None:
        self._store, self._kept, self._kept_bytes = store, kept, kept_bytes
        self._waiting: deque[AnswerRecord] = deque()
        self._bytes = self._unpruned = self._unpruned_bytes = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.dropped = 0
        self.written = 0

    def put(self, record: AnswerRecord) -> bool:
        """Queue a record without waiting; return False if it was dropped."""
        if not self._kept:
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
        """Start the thread."""
        if self._kept and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="answer-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write the waiting records, and stop the thread."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None
        self.flush()

    def flush(self) -> None:
        """Write all records queued so far, in the caller's thread, and return when they are written."""
        with self._writing:
            while batch := self._next():
                self._write(batch)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._stopping.wait(FLUSH_S)
            self._wake.clear()
            self.flush()

    def _next(self) -> list[AnswerRecord]:
        batch: list[AnswerRecord] = []
        size = 0
        with self._lock:
            while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
                batch.append(self._waiting.popleft())
                size += batch[-1].size_bytes
            self._bytes -= size
        return batch

    def _write(self, batch: Sequence[AnswerRecord]) -> None:
        try:
            write_answers(self._store, batch)
        except StoreError as error:
            with self._lock:
                self.dropped += len(batch)
            logger.warning("answers were not logged: %s", error, extra={"answers": len(batch)})
            return
        self.written += len(batch)
        self._unpruned += len(batch)
        self._unpruned_bytes += sum(each.size_bytes for each in batch)
        many = self._unpruned >= min(PRUNE_EVERY, self._kept)
        if many or self._unpruned_bytes >= min(PRUNE_EVERY_BYTES, self._kept_bytes):
            self._unpruned = self._unpruned_bytes = 0
            with contextlib.suppress(StoreError):  # the next pruning retries
                prune_answers(self._store, self._kept, self._kept_bytes)

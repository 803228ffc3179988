"""The log of answers: taken without waiting, written in the background in small batches, pruned to the newest.

It never keeps an answer from its caller: what the store does not take in time is dropped and counted. What a record
holds is its maker's business. Called by the service and its routes.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from modelserve.background import give_way
from modelserve.errors import StoreError
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, prune_answers, write_answers

__all__ = ["AnswerLog", "AnswerRecord"]

FLUSH_S: Final = 0.03
"""How long records gather before they are written: what a killed worker loses at most, and the price of a transaction
shared by all that came meanwhile."""
BATCH: Final = 100
"""Records in one transaction: a few milliseconds in which other writers of a file wait."""
WAITING: Final = 4096
"""Records that may wait; then they are dropped."""
WAITING_BYTES: Final = 32 * 2**20
"""What the waiting records may weigh together; a record of ten thousand jobs weighs megabytes."""
PRUNE_EVERY: Final = 1000
"""Records written between two prunings: so far the log may grow beyond what is kept, for each worker."""
PRUNE_EVERY_BYTES: Final = 64 * 2**20
"""What is written between two prunings at most; the same is true of it."""
REFUSED_S: Final = 600.0
"""How long records are held against what is refused: longer than any answer is at work."""
KEPT_BYTES: Final = 2 * 2**30
"""What the stored records may weigh together, where it is not said."""
STOP_S: Final = 10.0
"""Longest that stopping waits for the last records."""

logger = logging.getLogger(__name__)


class AnswerLog:
    """A bounded queue before the store, and the one thread that empties it; `kept` of 0 logs nothing."""

    def __init__(self, store: Store, kept: int, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._waiting: deque[AnswerRecord] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._unpruned = self._unpruned_bytes = 0
        self._refused: tuple[tuple[float, Callable[[AnswerRecord], bool]], ...] = ()
        self.dropped = 0
        self.written = 0

    def put(self, record: AnswerRecord) -> bool:
        """Take a record without waiting; return False where it had to be dropped. Without `kept` nothing is taken."""
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
        """Start the writer; a log that keeps nothing has none."""
        if self._kept and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="answer-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write what waits and end the writer."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None
        self._empty()

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
        give_way()
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
        if not batch:
            return
        try:
            write_answers(self._store, batch)
        except StoreError as error:
            with self._lock:
                self.dropped += len(batch)
            logger.warning("answers were not logged: %s", error, extra={"answers": len(batch)})
            return
        self.written += len(batch)
        self._prune(batch)

    def _next(self) -> list[AnswerRecord]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._bytes -= sum(record.size_bytes for record in batch)
        return batch

    def _prune(self, written: Sequence[AnswerRecord]) -> None:
        self._unpruned += len(written)
        self._unpruned_bytes += sum(record.size_bytes for record in written)
        few = self._unpruned < min(PRUNE_EVERY, self._kept)
        if few and self._unpruned_bytes < min(PRUNE_EVERY_BYTES, self._kept_bytes):
            return
        self._unpruned = self._unpruned_bytes = 0
        with contextlib.suppress(StoreError):  # the next time will do
            prune_answers(self._store, self._kept, self._kept_bytes)

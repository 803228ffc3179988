"""The answer log: answers with models, versions and evidence, written by one thread from a bounded queue.

Logging never delays an answer: records that do not fit in the queue are dropped and counted.
"""

import contextlib
import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import Select, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from modelserve.errors import StoreError
from modelserve.store.finished import RESOURCES
from modelserve.store.store import ANSWERS, Store

__all__ = ["UNREADABLE", "AnswerLog", "AnswerRecord", "Part", "named_answers", "newest_answers", "read_answer"]

Json = Mapping[str, Any]  # Any: JSON values
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a record that another version of the service wrote."""
Part = Literal["context", "response"]
PARTS: Final[tuple[Part, ...]] = ("context", "response")
"""The large columns of a record: each may take megabytes for a call with thousands of jobs."""

SPAN: Final = 20_000
"""Number of newest records that a search looks at."""
PAGE_BYTES: Final = 4 * 2**20
"""Maximum total size of the records in memory at a time; a larger record is read alone."""
_PAGE: Final = 256
"""Maximum number of records read by one statement."""

_TOGETHER: Final = 25
"""Number of records written before calls get the interpreter."""

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

FIELDS: Final = ("answer_id", "at", "kind", "caller", "trace", "models", *PARTS)
_WEIGHT: Final = select(ANSWERS.c.n, ANSWERS.c.weight).order_by(ANSWERS.c.n.desc())


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """One answer and its inputs: `context` and `response` are JSON."""

    answer_id: str
    at: float
    kind: str
    caller: str
    trace: str
    models: str
    context: bytes = b""
    response: bytes = b""

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record in bytes."""
        return len(self.context) + len(self.response) + 256

    def jobs(self) -> list[Json]:
        """Return the jobs of the call, each with its trace and cluster; none of an unreadable record."""
        try:
            body = json.loads(self.context)["body"]
            of_call = {"cluster": body["cluster"]} if body.get("cluster") else {}
            return [{**of_call, **job, "trace": job.get("trace") or self.trace} for job in body["jobs"]]
        except UNREADABLE:
            return []

    def recommendations(self) -> list[tuple[Json, Json]]:
        """Return every job of a recommendation or schedule with its answer; nothing of an unreadable record."""
        try:
            response = json.loads(self.response)
            pairs = zip(self.jobs(), response.get("schedule") or response["recommendations"], strict=True)
            return [(job, each) for job, each in pairs if job["job_id"] and each["target"].keys() >= set(RESOURCES)]
        except UNREADABLE:
            return []


def write_answers(store: Store, records: Sequence[AnswerRecord]) -> None:
    """Write records in one transaction."""
    with store.writing("logging answers") as connection:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        # An id that is stored already must not cost the other records of the batch.
        new = dialect.insert(ANSWERS).on_conflict_do_nothing(index_elements=["answer_id"])
        for begin in range(0, len(records), _TOGETHER):
            connection.execute(new, [_row(each) for each in records[begin : begin + _TOGETHER]])
            time.sleep(0)  # lets a call have the interpreter


def _row(record: AnswerRecord) -> dict[str, object]:
    # PostgreSQL texts cannot hold NUL; `context` holds the original name.
    return {**asdict(record), "trace": record.trace.replace("\x00", "\ufffd"), "weight": record.size_bytes}


def prune_answers(store: Store, kept: int, kept_bytes: int) -> int:
    """Delete the oldest records until at most `kept` records and `kept_bytes` bytes remain; return the number deleted.

    Only the deletion locks the store.
    """
    n, weight = ANSWERS.c.n, ANSWERS.c.weight
    with store.reading("weighing answers") as connection:
        newest, total = connection.execute(select(func.max(n), func.sum(weight))).one()
        last = (newest or 0) - kept
        if (total or 0) > kept_bytes:
            summed = select(n, func.sum(weight).over(order_by=n.desc()).label("bytes")).subquery()
            heavy = select(func.max(summed.c.n)).where(summed.c.bytes > kept_bytes)
            last = max(last, connection.execute(heavy).scalar_one())
    with store.writing("pruning answers") as connection:
        return connection.execute(delete(ANSWERS).where(n <= last)).rowcount


def read_answer(store: Store, answer_id: str) -> AnswerRecord | None:
    """Return the record with the id `answer_id`, or None if there is none."""
    return next(named_answers(store, [answer_id]), None)


def newest_answers(
    store: Store,
    *,
    parts: Sequence[Part] = PARTS,
    kind: str | None = None,
    limit: int = SPAN,
    limit_bytes: int = sys.maxsize,
) -> Iterator[AnswerRecord]:
    """Yield the newest records of a kind (None: all), the newest first.

    Only the large columns `parts` are read, at most `limit` records of `limit_bytes` in total, and at most `PAGE_BYTES`
    or one record at a time. Only the newest `SPAN` records of the log are searched.
    """
    newest = select(func.max(ANSWERS.c.n)).scalar_subquery()
    matching = _WEIGHT.where(ANSWERS.c.n > newest - SPAN)
    if kind is not None:
        matching = matching.where(ANSWERS.c.kind == kind)
    return _records(store, matching.limit(limit), parts, limit_bytes)


def named_answers(
    store: Store, answer_ids: Collection[str], *, parts: Sequence[Part] = PARTS, limit_bytes: int = sys.maxsize
) -> Iterator[AnswerRecord]:
    """Yield the records with these ids, the newest first; `parts` and `limit_bytes` as in `newest_answers`."""
    # No id of the service contains NUL, and PostgreSQL refuses it in texts.
    ids = sorted(each for each in answer_ids if "\x00" not in each)
    return _records(store, _WEIGHT.where(ANSWERS.c.answer_id.in_(ids)), parts, limit_bytes)


def _records(
    store: Store,
    chosen: Select[Any, Any],  # number and size
    parts: Sequence[Part],
    limit_bytes: int = sys.maxsize,
) -> Iterator[AnswerRecord]:
    """Read and yield the records chosen by number and size; skip records deleted meanwhile."""
    with store.reading("looking for answers") as connection:
        numbers = [(n, weight) for n, weight in connection.execute(chosen)]
    columns = [ANSWERS.c[name] for name in FIELDS if name not in PARTS or name in parts]
    for page in _pages(numbers, limit_bytes):
        page_of = select(*columns).where(ANSWERS.c.n.in_(page)).order_by(ANSWERS.c.n.desc())
        with store.reading("reading answers") as connection:
            rows = connection.execute(page_of).mappings().all()
        yield from (AnswerRecord(**row) for row in rows)


def _pages(found: Iterable[tuple[int, int]], limit_bytes: int) -> Iterator[list[int]]:
    page: list[int] = []
    held = total = 0
    for n, weight in found:
        total += weight
        if total > limit_bytes:
            break
        if page and (held + weight > PAGE_BYTES or len(page) == _PAGE):
            yield page
            page, held = [], 0
        page.append(n)
        held += weight
    if page:
        yield page


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

"""The stored answer log: answers with models, versions and evidence."""

import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import Select, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from modelserve.store.finished import RESOURCES
from modelserve.store.store import ANSWERS, Store

__all__ = [
    "UNREADABLE",
    "AnswerRecord",
    "Part",
    "named_answers",
    "newest_answers",
    "prune_answers",
    "read_answer",
    "write_answers",
]

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

FIELDS: Final = ("answer_id", "at", "kind", "caller", "trace", "models", *PARTS)
_WEIGHT: Final = select(ANSWERS.c.n, ANSWERS.c.weight).order_by(ANSWERS.c.n.desc())


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

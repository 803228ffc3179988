"""Read and delete records of the stored answer log: the predictions and recommendations that the service returned.

Records are written by `answer_writing`. Called by `modelserve.learning`, `modelserve.calls` and the commands.
"""

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Row, delete, false, func, or_, select

from modelserve.store.store import Store
from modelserve.store.tables import ANSWERS, COMPARISONS

__all__ = [
    "AnswerRecord",
    "Part",
    "answer_contexts",
    "delete_answers",
    "named_answers",
    "newest_answers",
    "read_answer",
]

Part = Literal["context", "features", "response"]
PARTS: Final[tuple[Part, ...]] = ("context", "features", "response")
"""The large columns of a record: each may take megabytes for a call with thousands of jobs."""

SPAN: Final = 20_000
"""Number of newest records that a search looks at."""
PAGE_BYTES: Final = 4 * 2**20
"""Maximum total size of the records in memory at a time; a larger record is read alone."""
_PAGE: Final = 256
"""Maximum number of records read or deleted by one statement."""

FIELDS: Final = ("answer_id", "at", "kind", "caller", "trace", "models", *PARTS)
_COLUMNS: Final = tuple(ANSWERS.c[name] for name in FIELDS)
_WEIGHT: Final = (ANSWERS.c.n, ANSWERS.c.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """One answer and its inputs: `context` is JSON, `features` the encoded feature rows of its jobs."""

    answer_id: str
    at: float
    kind: str
    caller: str
    trace: str
    models: str
    context: bytes
    features: bytes
    response: bytes

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record in bytes."""
        return len(self.context) + len(self.features) + len(self.response) + 256


AnswerRow = tuple[str, float, str, str, str, str, bytes, bytes, bytes, int]
"""One record as a database row: the fields of `AnswerRecord` in order, then the size in bytes."""


def read_answer(store: Store, answer_id: str) -> AnswerRecord | None:
    """Return the record with the id `answer_id`, or None if there is none.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    if "\x00" in answer_id:  # no id of the service contains NUL, and PostgreSQL refuses it in texts
        return None
    with store.reading("reading an answer") as connection:
        row = connection.execute(select(*_COLUMNS).where(ANSWERS.c.answer_id == answer_id)).one_or_none()
    return None if row is None else _record(row)


def newest_answers(
    store: Store,
    *,
    parts: Sequence[Part] = PARTS,
    kind: str | None = None,
    citing: Collection[str] | None = None,
    limit: int = SPAN,
    limit_bytes: int = sys.maxsize,
) -> Iterator[AnswerRecord]:
    """Yield the records that match all conditions, the newest first.

    At most `PAGE_BYTES` or one record is in memory at a time.

    Parameters
    ----------
    parts
        The large columns to read; the others are left empty.
    kind, citing
        Only records of this kind; only records that name one of these models. None means all.
    limit, limit_bytes
        Maximum number and total size of the records. Only the newest `SPAN` records of the log are searched.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    newest = select(func.max(ANSWERS.c.n)).scalar_subquery()
    asked = select(*_WEIGHT).where(ANSWERS.c.n > newest - SPAN)
    if kind is not None:
        asked = asked.where(ANSWERS.c.kind == kind)
    if citing is not None:
        asked = asked.where(or_(false(), *[ANSWERS.c.models.contains(name, autoescape=True) for name in citing]))
    with store.reading("looking for answers") as connection:
        found = [(n, weight) for n, weight in connection.execute(asked.order_by(ANSWERS.c.n.desc()).limit(limit))]
    return _records(store, found, parts, limit_bytes)


def named_answers(
    store: Store, answer_ids: Collection[str], *, parts: Sequence[Part] = PARTS, limit_bytes: int = sys.maxsize
) -> Iterator[AnswerRecord]:
    """Yield the records with the ids `answer_ids`, the newest first; `parts` and `limit_bytes` as in `newest_answers`.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(*_WEIGHT).where(ANSWERS.c.answer_id.in_(sorted(answer_ids))).order_by(ANSWERS.c.n.desc())
    with store.reading("looking for answers") as connection:
        found = [(n, weight) for n, weight in connection.execute(asked)]
    return _records(store, found, parts, limit_bytes)


def answer_contexts(
    store: Store, *, since: float = -math.inf, until: float = math.inf
) -> Iterator[tuple[str, str, bytes]]:
    """Yield id, trace and context of every record between two Unix times, the newest first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(*_WEIGHT).order_by(ANSWERS.c.n.desc()).limit(SPAN)
    # Some databases reject infinity, so leave infinite bounds out.
    for bound, held in ((since, ANSWERS.c.at >= since), (until, ANSWERS.c.at <= until)):
        asked = asked.where(held) if math.isfinite(bound) else asked
    below = sys.maxsize
    while True:
        with store.reading("looking for answers") as connection:
            found = [(n, weight) for n, weight in connection.execute(asked.where(ANSWERS.c.n < below))]
        for record in _records(store, found, ("context",)):
            yield record.answer_id, record.trace, record.context
        if len(found) < SPAN:
            return
        below = found[-1][0]


def _records(
    store: Store, found: Iterable[tuple[int, int]], parts: Sequence[Part], limit_bytes: int = sys.maxsize
) -> Iterator[AnswerRecord]:
    """Read and yield the records in `found`, pairs of record number and size; skip records deleted meanwhile."""
    columns = [ANSWERS.c[name] for name in FIELDS if name not in PARTS or name in parts]
    for page in _pages(found, limit_bytes):
        asked = select(*columns).where(ANSWERS.c.n.in_(page)).order_by(ANSWERS.c.n.desc())
        with store.reading("reading answers") as connection:
            rows = connection.execute(asked).all()
        yield from map(_record, rows)


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


def delete_answers(store: Store, answer_ids: Sequence[str]) -> int:
    """Delete the records with the ids `answer_ids` and their shadow comparisons; return the number of records.

    Raises
    ------
    StoreError
        A batch failed and none of it was deleted; earlier batches were.
    """
    gone = 0
    for begin in range(0, len(answer_ids), _PAGE):
        batch = list(answer_ids[begin : begin + _PAGE])
        with store.writing("deleting answers") as connection:
            connection.execute(delete(COMPARISONS).where(COMPARISONS.c.answer_id.in_(batch)))
            gone += connection.execute(delete(ANSWERS).where(ANSWERS.c.answer_id.in_(batch))).rowcount
    return gone


def _record(row: Row[*tuple[object, ...]]) -> AnswerRecord:
    fields = row._mapping
    return AnswerRecord(
        answer_id=fields["answer_id"],
        at=float(fields["at"]),
        kind=fields["kind"],
        caller=fields["caller"],
        trace=fields["trace"],
        models=fields["models"],
        context=bytes(fields.get("context", b"")),
        features=bytes(fields.get("features", b"")),
        response=bytes(fields.get("response", b"")),
    )

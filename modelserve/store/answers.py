"""The log of answers as it is stored: written in batches, pruned to the newest, read by id or from the newest back.

What is inside a record is its writer's business. Called by `modelserve.answer_log` and `modelserve.learning`.
"""

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, Literal

from sqlalchemy import Row, delete, false, func, or_, select

from modelserve.store.store import Store
from modelserve.store.tables import ANSWERS, COMPARISONS
from modelserve.store.tally import Tally

Part = Literal["context", "features", "response"]
PARTS: Final[tuple[Part, ...]] = ("context", "features", "response")
"""What makes a record heavy; of thousands of jobs each may weigh megabytes."""

SPAN: Final = 20_000
"""Records, the newest, that are looked through for some of them."""
PAGE_BYTES: Final = 4 * 2**20
"""What the records that are read at a time may weigh together; a heavier one is read by itself."""
_PAGE: Final = 256
"""Records read or deleted at a time."""

_FIELDS: Final = ("answer_id", "at", "kind", "caller", "trace", "models", *PARTS)
_COLUMNS: Final = tuple(ANSWERS.c[name] for name in _FIELDS)
_WRITTEN: Final = (*_FIELDS, "weight")
_WEIGHT: Final = (ANSWERS.c.n, ANSWERS.c.weight)
_TOGETHER: Final = 25
"""Records in one statement: a part of a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """One answer, and all that it was made from: `context` is JSON, `features` what the models were shown."""

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
        """What the record weighs, near enough."""
        return len(self.context) + len(self.features) + len(self.response) + 256


AnswerRow = tuple[str, float, str, str, str, str, bytes, bytes, bytes, int]
"""One record as it is written: its fields in their order, then its weight."""


def row_of(record: AnswerRecord) -> AnswerRow:
    """Return a record as it is written."""
    return (
        record.answer_id,
        record.at,
        record.kind,
        record.caller,
        # PostgreSQL holds no NUL in a text; the context has the name as it came.
        record.trace.replace("\x00", "\ufffd"),
        record.models,
        record.context,
        record.features,
        record.response,
        record.size_bytes,
    )


def write_answers(store: Store, records: Sequence[AnswerRecord]) -> None:
    """Write records in one transaction; one that is stored already is passed over.

    Raises
    ------
    StoreError
        None of them was written.
    """
    write_rows(store, [row_of(record) for record in records])


def write_rows(store: Store, rows: Sequence[AnswerRow], *, between: Callable[[], object] = lambda: None) -> None:
    """Write records as `write_answers` does; `between` is called whenever a part of a millisecond has gone into it.

    Raises
    ------
    StoreError
        None of them was written.
    """
    with store.writing("logging answers") as connection:
        # One statement for many rows: drivers that take them one by one take longer.
        for begin in range(0, len(rows), _TOGETHER):
            part = rows[begin : begin + _TOGETHER]
            said = _insert_by(connection.dialect.paramstyle, len(part))
            connection.exec_driver_sql(said, tuple(chain.from_iterable(part)))
            between()


@lru_cache(maxsize=2 * _TOGETHER)
def _insert_by(paramstyle: str, rows: int) -> str:
    """Return the INSERT of so many records with the driver's placeholders: `?`, or `%s`."""
    one = ", ".join(["?" if paramstyle == "qmark" else "%s"] * len(_WRITTEN))
    values = ", ".join([f"({one})"] * rows)
    # A writer that was ended before it could say what it had done is asked again: the same id is the same answer.
    return f"INSERT INTO {ANSWERS.name} ({', '.join(_WRITTEN)}) VALUES {values} ON CONFLICT (answer_id) DO NOTHING"


def prune_answers(store: Store, kept: int, kept_bytes: int, *, tally: Tally | None = None) -> int:
    """Delete the oldest beyond the newest `kept` records and beyond `kept_bytes`, and return how many went.

    Records are told apart by their numbers, and weights are read from an index: no record is read for it. With a
    `tally` that was here before, only the weights at the ends of the log are.

    Raises
    ------
    StoreError
        Not all of them were deleted.
    """
    newest = select(func.max(ANSWERS.c.n)).scalar_subquery()
    with store.writing("pruning answers") as connection:
        gone = connection.execute(delete(ANSWERS).where(ANSWERS.c.n <= newest - kept)).rowcount
        excess = (tally or Tally()).weight_bytes(connection) - kept_bytes
        by_age = select(*_WEIGHT).order_by(ANSWERS.c.n).limit(_PAGE)
        while excess > 0 and (oldest := connection.execute(by_age).all()):
            last = oldest[0].n
            for n, weight in oldest:
                excess, last = excess - weight, n
                if excess <= 0:
                    break
            gone += connection.execute(delete(ANSWERS).where(ANSWERS.c.n <= last)).rowcount
    return gone


def read_answer(store: Store, answer_id: str) -> AnswerRecord | None:
    """Return the record of an id, or None.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    if "\x00" in answer_id:  # no id of ours, and PostgreSQL takes none in a text
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
    """Yield records of one kind, or that cite one of some models (None: all), the newest first.

    No more than the newest `SPAN` are looked through, and of those that fit no more are read than `limit`, and than
    weigh `limit_bytes` together. Of a record only `parts` are read, the others are empty; what is in memory at a time
    weighs `PAGE_BYTES`, or is one record.

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
    """Yield the records of these ids, the newest first; bounded and read as by `newest_answers`.

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
    """Yield the id, trace and context of every record of a span of Unix time, the newest first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(*_WEIGHT).order_by(ANSWERS.c.n.desc()).limit(SPAN)
    # Infinity is no number to every database.
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
    """Yield records by their numbers and weights, as they come; who is gone meanwhile is passed over."""
    columns = [ANSWERS.c[name] for name in _FIELDS if name not in PARTS or name in parts]
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
    """Delete the records of these ids, and what challengers said beside them; return how many records there were.

    Raises
    ------
    StoreError
        Nothing of the failing batch was deleted.
    """
    gone = 0
    for begin in range(0, len(answer_ids), _PAGE):
        batch = list(answer_ids[begin : begin + _PAGE])
        with store.writing("deleting answers") as connection:
            connection.execute(delete(COMPARISONS).where(COMPARISONS.c.answer_id.in_(batch)))
            gone += connection.execute(delete(ANSWERS).where(ANSWERS.c.answer_id.in_(batch))).rowcount
    return gone


def _record(row: Row[*tuple[object, ...]]) -> AnswerRecord:
    said = row._mapping
    return AnswerRecord(
        answer_id=said["answer_id"],
        at=float(said["at"]),
        kind=said["kind"],
        caller=said["caller"],
        trace=said["trace"],
        models=said["models"],
        context=bytes(said.get("context", b"")),
        features=bytes(said.get("features", b"")),
        response=bytes(said.get("response", b"")),
    )

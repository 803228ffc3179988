"""The log of answers as it is stored: written in batches, pruned to the newest, read by id or from the newest back.

What is inside a record is its writer's business. Called by `modelserve.answer_log` and `modelserve.learning`.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlalchemy import Row, delete, func, select

from modelserve.store.store import Store
from modelserve.store.tables import ANSWERS, COMPARISONS

_FIELDS: Final = ("answer_id", "at", "kind", "caller", "trace", "models", "context", "features", "response")
_COLUMNS: Final = tuple(ANSWERS.c[name] for name in _FIELDS)
_PAGE: Final = 256
"""Records read at a time when many are looked through: a record may hold thousands of jobs."""


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


def write_answers(store: Store, records: Sequence[AnswerRecord]) -> None:
    """Write records in one transaction.

    Raises
    ------
    StoreError
        None of them was written.
    """
    rows = [
        (
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
        )
        for record in records
    ]
    with store.writing("logging answers") as connection:
        # The driver's own loop: SQLAlchemy's costs as much again for each of a great many rows.
        connection.exec_driver_sql(_insert_by(connection.dialect.paramstyle), rows)


@lru_cache(maxsize=8)
def _insert_by(paramstyle: str) -> str:
    """Return the INSERT of a record with the driver's placeholders: `?`, or `%s`."""
    placeholder = "?" if paramstyle == "qmark" else "%s"
    return f"INSERT INTO {ANSWERS.name} ({', '.join(_FIELDS)}) VALUES ({', '.join([placeholder] * len(_FIELDS))})"


def prune_answers(store: Store, kept: int) -> int:
    """Delete all but the newest `kept` records and return how many went; the numbers tell, nothing is counted.

    Raises
    ------
    StoreError
        Nothing was deleted.
    """
    newest = select(func.max(ANSWERS.c.n)).scalar_subquery()
    with store.writing("pruning answers") as connection:
        return connection.execute(delete(ANSWERS).where(ANSWERS.c.n <= newest - kept)).rowcount


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
    store: Store, *, traces: Collection[str] | None = None, kind: str | None = None, limit: int | None = None
) -> Iterator[AnswerRecord]:
    """Yield the records of some traces and of one kind (None: all), the newest first, a page in memory at a time.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(ANSWERS.c.n, *_COLUMNS)
    if traces is not None:
        asked = asked.where(ANSWERS.c.trace.in_(sorted(traces)))
    if kind is not None:
        asked = asked.where(ANSWERS.c.kind == kind)
    below, left = None, sys.maxsize if limit is None else limit
    while left > 0:
        page = asked if below is None else asked.where(ANSWERS.c.n < below)
        with store.reading("reading answers") as connection:
            rows = connection.execute(page.order_by(ANSWERS.c.n.desc()).limit(min(_PAGE, left))).all()
        for row in rows:
            yield _record(row)
        if len(rows) < _PAGE:
            return
        below, left = rows[-1].n, left - len(rows)


def answer_contexts(store: Store) -> Iterator[tuple[str, str, bytes]]:
    """Yield the id, trace and context of every record, the newest first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(ANSWERS.c.n, ANSWERS.c.answer_id, ANSWERS.c.trace, ANSWERS.c.context).order_by(ANSWERS.c.n.desc())
    below = sys.maxsize
    while True:
        with store.reading("reading answers") as connection:
            rows = connection.execute(asked.where(ANSWERS.c.n < below).limit(_PAGE)).all()
        yield from ((row.answer_id, row.trace, bytes(row.context)) for row in rows)
        if len(rows) < _PAGE:
            return
        below = rows[-1].n


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
        context=bytes(said["context"]),
        features=bytes(said["features"]),
        response=bytes(said["response"]),
    )

"""Stored shadow comparisons: predictions of a champion and its challenger for the same job."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

from sqlalchemy import delete, exists, func, insert, select

from modelserve.store.changes import KINDS, Erasure
from modelserve.store.store import Store
from modelserve.store.tables import ANSWERS, CHANGES, COMPARISONS

__all__ = ["Comparison", "delete_orphans", "newest_comparisons", "write_comparisons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The predictions of a champion and its challenger for one job; `cluster` is empty if none was named."""

    answer_id: str
    at: float
    trace: str
    cluster: str
    job_id: str
    champion: str
    challenger: str
    p50_s: float | None
    p90_s: float | None
    challenger_p50_s: float | None
    challenger_p90_s: float | None


_LOGGED: Final = exists().where(ANSWERS.c.answer_id == COMPARISONS.c.answer_id).correlate(COMPARISONS)
_COLUMNS: Final = tuple(COMPARISONS.c[field.name] for field in fields(Comparison))


def write_comparisons(store: Store, rows: Sequence[Comparison], *, kept: int) -> None:
    """Write comparisons in one transaction, and delete all but about the newest `kept`.

    If a user was erased after a comparison was made, the comparison is kept only if its answer is still in the log.
    """
    if not rows:
        return
    newest = select(func.max(COMPARISONS.c.n)).scalar_subquery()
    ids = sorted({row.answer_id for row in rows})
    last_erasure = select(func.max(CHANGES.c.at)).where(CHANGES.c.kind == KINDS[Erasure]).scalar_subquery()
    erased_since = COMPARISONS.c.at <= last_erasure
    with store.writing("storing comparisons") as connection:
        connection.execute(insert(COMPARISONS), [asdict(row) for row in rows])
        connection.execute(delete(COMPARISONS).where(COMPARISONS.c.n <= newest - kept))
        connection.execute(delete(COMPARISONS).where(COMPARISONS.c.answer_id.in_(ids), erased_since, ~_LOGGED))


def delete_orphans(store: Store, *, since: float, until: float) -> int:
    """Delete the comparisons between two Unix times whose answers are not in the log; return their number."""
    span = (COMPARISONS.c.at >= since, COMPARISONS.c.at <= until)
    with store.writing("deleting comparisons") as connection:
        return connection.execute(delete(COMPARISONS).where(*span, ~_LOGGED)).rowcount


def newest_comparisons(
    store: Store, *, limit: int, pair: tuple[str, str] | None = None, clusters: Collection[str] | None = None
) -> list[Comparison]:
    """Return up to `limit` comparisons, the newest first.

    With `pair`, only those of this champion and challenger; with `clusters`, only those of jobs in these clusters.
    """
    asked = select(*_COLUMNS).order_by(COMPARISONS.c.n.desc()).limit(limit)
    if pair is not None:
        asked = asked.where(COMPARISONS.c.champion == pair[0], COMPARISONS.c.challenger == pair[1])
    if clusters is not None:
        asked = asked.where(COMPARISONS.c.cluster.in_(sorted(clusters)))
    with store.reading("reading comparisons") as connection:
        return [Comparison(**row) for row in connection.execute(asked).mappings()]

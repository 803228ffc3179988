"""What stored reports say of similar jobs: their newest measured use, and how many reports name an answer.

Called by `modelserve.learning.trust`.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import func, select

from modelserve.store.store import Store
from modelserve.store.tables import FEEDBACK

__all__ = ["MEASURES", "newest_use", "reports_by_answer"]

MEASURES: Final = ("mem_max_gib", "gpu_mem_max_gib", "used_cpu_cores", "used_gpus")
TIED: Final = ("confirmed", "unconfirmed")
"""Trust in reports that are tied to an answer."""


def newest_use(
    store: Store, alike: Collection[tuple[str, str | None]], *, tied: bool, limit: int
) -> list[tuple[float | None, ...]]:
    """Return `MEASURES` of the newest jobs whose reports are tied (or not tied) to an answer, the oldest first.

    `alike` holds the columns that the jobs have in common, and their values.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    c = FEEDBACK.c
    same = [c[name].is_(None) if value is None else c[name] == value for name, value in alike]
    asked = select(*(c[name] for name in MEASURES)).where(*same, c.trust.in_(TIED if tied else ("untied",)))
    with store.reading("reading the use of similar jobs") as connection:
        rows = connection.execute(asked.order_by(c.seq.desc()).limit(limit)).all()
    return [tuple(row) for row in reversed(rows)]


def reports_by_answer(store: Store, answer_ids: Collection[str]) -> dict[str, int]:
    """Return how many stored reports are tied to each answer.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    c = FEEDBACK.c
    asked = select(c.answer_id, func.count()).where(c.answer_id.in_(sorted(answer_ids)), c.trust != "untied")
    with store.reading("counting reports of answers") as connection:
        return {str(name): int(count) for name, count in connection.execute(asked.group_by(c.answer_id))}

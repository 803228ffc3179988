"""Bring a store of an older layout forward, in the transaction that opens it: it is changed whole or not at all.

A new layout needs its number in `modelserve.store.tables` and a step here. Called by `modelserve.store.store`.
"""

from typing import Final

from sqlalchemy import Connection, select, text, update

from modelserve.errors import StoreError
from modelserve.store.tables import ANSWERS, FEEDBACK, LAYOUT, STORE

STEPS: Final[dict[int, tuple[str, ...]]] = {
    1: (
        f"ALTER TABLE {ANSWERS.name} ADD COLUMN weight BIGINT NOT NULL DEFAULT 0",
        f"UPDATE {ANSWERS.name} SET weight = length(context) + length(features) + length(response) + 256",
        "DROP INDEX IF EXISTS taut_feedback_of_model",
    ),
    2: (f"ALTER TABLE {FEEDBACK.name} ADD COLUMN forecasts TEXT",),
    3: (f"ALTER TABLE {FEEDBACK.name} ADD COLUMN trust TEXT NOT NULL DEFAULT 'confirmed'",),
}
"""SQL that turns each older layout into the next one, for SQLite and PostgreSQL alike; missing indexes are added after
the last step."""
MIGRATION_LIMIT_S: Final = 600
"""Maximum duration in seconds of one step in PostgreSQL, and of the wait for another worker's migration."""


def migrate(connection: Connection) -> None:
    """Change the tables to the present layout; the caller has locked the store and commits.

    Raises
    ------
    StoreError
        The layout is of a newer release, or unknown.
    """
    layouts = list(connection.execute(select(STORE.c.layout)).scalars().all())
    if layouts == [LAYOUT]:
        return
    if len(layouts) == 1 and layouts[0] > LAYOUT:
        raise StoreError(
            f"store: found layout {layouts[0]} of a newer taut, expected at most {LAYOUT}; use that taut, or "
            "a new store"
        )
    if len(layouts) != 1 or layouts[0] not in STEPS:
        raise StoreError(
            f"store: found layout {layouts[:3]}, expected {LAYOUT}; use the taut that created it, or a new store"
        )
    for layout in range(layouts[0], LAYOUT):
        for statement in STEPS[layout]:
            connection.execute(text(statement))
    for table in (FEEDBACK, ANSWERS):
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    connection.execute(update(STORE).values(layout=LAYOUT))

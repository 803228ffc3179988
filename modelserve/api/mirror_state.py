"""How long ago the registry was mirrored, as callers are told it.

Nothing is mirrored here; what the sync process left is read by `modelserve.loading.sync_state`. Called by `/readyz` and
the upkeep.
"""

from pathlib import Path

from pydantic import BaseModel

from modelserve.loading.sync_state import SyncState, read_state


class MirrorState(BaseModel):
    """What the sync process said: how long ago a round went well (null: never), and what was wrong with the last."""

    age_s: float | None
    error: str | None
    failing: list[str]


def read_mirror_state(folder: Path, *, now_s: float) -> MirrorState | None:
    """Return the state of the mirror of a folder; None where nothing mirrors into it."""
    written = read_state(folder)
    if written == SyncState():
        return None
    age_s = max(0.0, now_s - written.at) if written.at else None
    return MirrorState(age_s=age_s, error=written.error, failing=list(written.failing))

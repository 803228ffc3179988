"""How long ago the registry was mirrored, as callers are told it.

Nothing is mirrored here; what the sync process left is read by `modelserve.loading.sync_state`. Called by `/readyz` and
the upkeep.
"""

from pathlib import Path

from modelserve.contract.models import MirrorState
from modelserve.loading.sync_state import SyncState, read_state


def read_mirror_state(folder: Path, *, now_s: float) -> MirrorState | None:
    """Return the state of the mirror of a folder; None where nothing mirrors into it."""
    written = read_state(folder)
    if written == SyncState():
        return None
    age_s = max(0.0, now_s - written.at) if written.at else None
    return MirrorState(age_s=age_s, error=written.error, failing=list(written.failing))

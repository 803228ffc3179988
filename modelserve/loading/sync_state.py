"""The state of the last mirroring round, as a file in the folder of bundles.

An unreadable file counts as absent. Written by `modelserve.loading.sync`; read by `modelserve.api`.
"""

import logging
import tempfile
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from modelserve.bundle.card import canonical_json
from modelserve.contract.models import MirrorState

__all__ = ["read_mirror_state"]

STATE: Final = ".sync.json"
STATE_LIMIT_BYTES: Final = 65_536

logger = logging.getLogger(__name__)


class SyncState(BaseModel):
    """The last round, in Unix seconds: the last attempt, and the last success (`at`, 0 for never)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float = 0.0
    attempted_at: float = 0.0
    error: str | None = None
    failing: tuple[str, ...] = ()


def read_state(folder: Path) -> SyncState:
    """Return the state of the last round over a folder; the state before any round if the file cannot be read."""
    try:
        with (folder / STATE).open("rb") as file:
            return SyncState.model_validate_json(file.read(STATE_LIMIT_BYTES))
    except (OSError, ValidationError):
        return SyncState()


def write_state(folder: Path, state: SyncState) -> None:
    """Write the state of a round in one step; if the folder is not writable, log a warning."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{STATE}.") as stage:
            staged = Path(stage) / STATE
            staged.write_bytes(canonical_json(state.model_dump(mode="json")))
            staged.replace(folder / STATE)
    except OSError as error:
        logger.warning("%s cannot be written (%s)", STATE, error.strerror)


def read_mirror_state(folder: Path, *, now_s: float) -> MirrorState | None:
    """Return the state of the mirror of a folder; None if the folder was never mirrored."""
    written = read_state(folder)
    if written == SyncState():
        return None
    age_s = max(0.0, now_s - written.at) if written.at else None
    return MirrorState(age_s=age_s, error=written.error, failing=list(written.failing))

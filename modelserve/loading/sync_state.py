"""The result of the last sync round, as a file in the folder of bundles.

A file that cannot be read counts as missing. Written by `modelserve.loading.sync`; read by `modelserve.api`.
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
    """The last sync round: time of the last attempt, and of the last success (`at`), in Unix seconds; 0 for never.

    `error` is why the last round failed, `failing` the errors of single models.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float = 0.0
    attempted_at: float = 0.0
    error: str | None = None
    failing: tuple[str, ...] = ()


def read_state(folder: Path) -> SyncState:
    """Return the state of the last round; if the file cannot be read, the state before the first round."""
    try:
        with (folder / STATE).open("rb") as file:
            return SyncState.model_validate_json(file.read(STATE_LIMIT_BYTES))
    except (OSError, ValidationError):
        return SyncState()


def write_state(folder: Path, state: SyncState) -> None:
    """Write the state of a round atomically; if the folder is not writable, log a warning."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{STATE}.") as stage:
            staged = Path(stage) / STATE
            staged.write_bytes(canonical_json(state.model_dump(mode="json")))
            staged.replace(folder / STATE)
    except OSError as error:
        logger.warning("%s cannot be written (%s)", STATE, error.strerror)


def read_mirror_state(folder: Path, *, now_s: float) -> MirrorState | None:
    """Return the sync state of a folder for readiness responses; None if there was no round yet."""
    written = read_state(folder)
    if written == SyncState():
        return None
    age_s = max(0.0, now_s - written.at) if written.at else None
    return MirrorState(age_s=age_s, error=written.error, failing=list(written.failing))

"""How the last round of mirroring went, as the sync process leaves it beside the bundles for everybody to read.

A file that is absent or makes no sense is as good as none. Written by `modelserve.loading.sync`; read by
`modelserve.api`.
"""

import logging
import tempfile
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from modelserve.bundle.card import canonical_json

STATE: Final = ".sync.json"
STATE_LIMIT_BYTES: Final = 65_536

logger = logging.getLogger(__name__)


class SyncState(BaseModel):
    """The last round, in Unix seconds: when it was attempted, and when one last went well (`at`, 0 for never)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float = 0.0
    attempted_at: float = 0.0
    error: str | None = None
    failing: tuple[str, ...] = ()


def read_state(folder: Path) -> SyncState:
    """Return how the last round over a folder went; one that never was where nothing can be read."""
    try:
        with (folder / STATE).open("rb") as file:
            return SyncState.model_validate_json(file.read(STATE_LIMIT_BYTES))
    except (OSError, ValidationError):
        return SyncState()


def write_state(folder: Path, state: SyncState) -> None:
    """Write how a round went, in one step; a folder that cannot be written keeps what it says."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{STATE}.") as stage:
            staged = Path(stage) / STATE
            staged.write_bytes(canonical_json(state.model_dump(mode="json")))
            staged.replace(folder / STATE)
    except OSError as error:
        logger.warning("%s cannot be written (%s)", STATE, error.strerror)

"""How long ago the registry was mirrored, as the sync process left it beside the bundles.

Nothing is mirrored here, and a file that is absent or makes no sense is as good as none. Called by `/readyz` and the
upkeep.
"""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

STATE: Final = ".sync.json"
STATE_LIMIT_BYTES: Final = 65_536


class MirrorState(BaseModel):
    """What the sync process said: how long ago a round went well (null: never), and what was wrong with the last."""

    age_s: float | None
    error: str | None
    failing: list[str]


class _Written(BaseModel):
    """The file, as far as it is read here."""

    model_config = ConfigDict(extra="ignore")

    at: float
    error: str | None = None
    failing: list[str] = []


def read_mirror_state(folder: Path, *, now_s: float) -> MirrorState | None:
    """Return the state of the mirror of a folder; None where nothing mirrors into it."""
    try:
        with (folder / STATE).open("rb") as file:
            written = _Written.model_validate_json(file.read(STATE_LIMIT_BYTES))
    except (OSError, ValidationError):
        return None
    age_s = max(0.0, now_s - written.at) if written.at else None
    return MirrorState(age_s=age_s, error=written.error, failing=written.failing)

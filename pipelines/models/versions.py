"""Registered versions of models: their aliases, and the tags that hold the verdict of the gate and the promotion.

Versions are read with a client of MLflow that `pipelines.models.tracking` makes. Called by `tracking` and `renewal`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from modelserve.bundle.quiet import is_unknown
from pipelines.errors import RegistryError

__all__ = ["ModelVersion"]

CHAMPION: Final = "champion"
CHALLENGER: Final = "challenger"

STATUS: Final = "validation_status"
REASONS: Final = "gate"
DIGEST: Final = "bundle_sha256"
REPLACED: Final = "replaced_champion"
FORCED: Final = "forced"
ROLLED_BACK: Final = "rolled_back_to"
SEEN: Final = "seen_until"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One registered version of a model: its aliases, the verdict of the gate, and its MLflow run.

    `replaced` is the champion that it replaced when it was promoted, None if it was never promoted or replaced none.
    `seen` is the time of the latest event in the data when it was trained, None if not recorded.
    """

    name: str
    version: int
    aliases: tuple[str, ...]
    status: str
    reasons: str
    digest: str
    run_id: str
    replaced: int | None
    seen: datetime | None

    @property
    def reference(self) -> str:
        """Return the name that responses give for this version, such as `runtime.pai.ctr@7`."""
        return f"{self.name}@{self.version}"


def version_of(client: Any, name: str, version: int) -> ModelVersion:
    """Return a registered version; raise RegistryError if there is none."""
    try:
        found = client.get_model_version(name, str(version))
    except Exception as error:
        if not is_unknown(error):
            raise
        raise RegistryError(f"{name}: no version {version}, expected one that `taut models` lists") from error
    return ModelVersion(
        name=found.name,
        version=int(found.version),
        aliases=tuple(sorted(found.aliases)),
        status=found.tags.get(STATUS, "unknown"),
        reasons=found.tags.get(REASONS, "no verdict recorded"),
        digest=found.tags.get(DIGEST, ""),
        run_id=found.run_id or "",
        replaced=int(found.tags[REPLACED]) if REPLACED in found.tags else None,
        seen=datetime.fromisoformat(found.tags[SEEN]) if SEEN in found.tags else None,
    )


def by_alias(client: Any, name: str, alias: str) -> ModelVersion | None:
    """Return the version of a model that has an alias, or None; raise RegistryError if there is no such model."""
    try:
        held = client.get_registered_model(name).aliases.get(alias)
    except Exception as error:
        if not is_unknown(error):
            raise
        raise RegistryError(f"{name}: no such model, expected one that `taut models` lists; train it first") from error
    return None if held is None else version_of(client, name, int(held))

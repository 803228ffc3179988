"""Where commands work when nobody says: the lake, and beside it the registry and the mirrored bundles.

Nothing is opened and nothing heavy imported: a server's parent process settles its place here, too. Called by
`pipelines.cli.opening` and `pipelines.cli.serve_settings`.
"""

from dataclasses import dataclass
from pathlib import Path

from pipelines.settings import load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command works: the lake, the registry of its models, the folder that mirrors the champions."""

    lake: Path
    tracking_uri: str
    bundles: Path


def place_of(lake: Path | None) -> Place:
    """Settle where to work: the option, else the settings; registry and bundles lie beside the lake if not set."""
    settings = load_settings()
    folder = lake or settings.lake
    beside = folder.absolute().parent
    return Place(
        lake=folder,
        tracking_uri=settings.tracking_uri or f"sqlite:///{beside / 'mlflow.db'}",
        bundles=settings.bundles or beside / "bundles",
    )

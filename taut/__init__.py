"""taut from Python: open a lake and train on it, or call a service.

Only names of other packages, put together; heavy imports wait for their first use.

    lake = taut.open("data/demo/lake")
    lake.rightsize().head(10)
    models = lake.train()
    client = taut.Client("http://127.0.0.1:8080")

Frames are Polars; `.to_pandas()` converts them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError

if TYPE_CHECKING:
    from modelserve.client import AsyncClient, Client
    from taut.lake import OpenLake

__all__ = ["AsyncClient", "Client", "PipelineError", "open"]


def open(path: str | Path) -> "OpenLake":  # noqa: A001  # called as taut.open
    """Open the lake in a folder, to read its tables, find over-claims, and train models.

    Raises
    ------
    LakeError
        If the folder holds no lake.
    """
    from taut.lake import OpenLake

    return OpenLake(path)


def __getattr__(name: str) -> object:
    """Import the clients when they are first used."""
    if name in ("AsyncClient", "Client"):
        from modelserve import client

        return getattr(client, name)
    raise AttributeError(f"module 'taut' has no attribute {name!r}; it has {', '.join(__all__)}")

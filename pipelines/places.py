"""Where a lake is named by a path or by an address, and which folder is beside it.

Called by `pipelines.settings`, `pipelines.lake` and `pipelines.cli`.
"""

from pathlib import Path
from typing import Final

__all__ = ["beside", "located"]

DATA: Final = Path("data")


def located(where: str | Path) -> str | Path:
    """Return an address, such as s3://bucket/prefix, as text, and any other name as a path."""
    return where if isinstance(where, str) and "://" in where else Path(where)


def beside(lake: str | Path) -> Path:
    """Return the folder of the files next to a lake; of a lake elsewhere, the folder `data`.

    >>> beside("/srv/taut/lake").as_posix(), beside("s3://fleet/lake").name
    ('/srv/taut', 'data')
    """
    place = located(lake)
    return (DATA if isinstance(place, str) else place.parent).absolute()

"""The published traces, one declaration per file; their publishers' names and units appear only in this package."""

from typing import Final

from pipelines.lake.sources.helios import HELIOS
from pipelines.lake.sources.openb import OPENB
from pipelines.lake.sources.pai import PAI
from pipelines.lake.sources.philly import PHILLY
from pipelines.lake.sources.source import Source

__all__ = ["SOURCES"]

SOURCES: Final[dict[str, Source]] = {"pai": PAI, "helios": HELIOS, "philly": PHILLY, "openb": OPENB}

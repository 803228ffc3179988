"""The published traces, one declaration each; vendor spellings end in this package.

What a source is stands in `source.py`, reading files in `archive.py`; executing is `pipelines.lake.staging`'s.
Called by `pipelines.lake.ingest` and the command line.
"""

from typing import Final

from pipelines.lake.sources.helios import HELIOS
from pipelines.lake.sources.openb import OPENB
from pipelines.lake.sources.pai import PAI
from pipelines.lake.sources.philly import PHILLY
from pipelines.lake.sources.source import Source

SOURCES: Final[dict[str, Source]] = {"pai": PAI, "helios": HELIOS, "philly": PHILLY, "openb": OPENB}

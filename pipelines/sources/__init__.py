"""The published traces, one declaration each; vendor spellings end in this package.

What a source is stands in `source.py`, reading files in `archive.py`; executing is `pipelines.staging`'s.
Called by `pipelines.ingest` and the command line.
"""

from typing import Final

from pipelines.sources.helios import HELIOS
from pipelines.sources.openb import OPENB
from pipelines.sources.pai import PAI
from pipelines.sources.philly import PHILLY
from pipelines.sources.source import Source

SOURCES: Final[dict[str, Source]] = {"pai": PAI, "helios": HELIOS, "philly": PHILLY, "openb": OPENB}

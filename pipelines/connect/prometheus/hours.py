"""The hours that were read from a server, as Parquet files in the lake: a broken run goes on where it stopped.

Only whole hours are kept.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from pipelines.connect.prometheus.readings import READING

FOLDER = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The folder of the hours of one server, dialect and selection of series."""

    folder: Path

    def path(self, hour_s: float, pieces: pl.DataFrame | None) -> Path:
        """Return the file of an hour; hours with other holdings of GPUs (`pieces`) have other files."""
        held = "" if pieces is None else f"-{_digest(pieces.write_json())}"
        return self.folder / f"{datetime.fromtimestamp(hour_s, UTC):%Y%m%dT%H}{held}.parquet"

    def keep(self, path: Path, readings: pl.DataFrame) -> None:
        """Write the readings of an hour; the file appears whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".tmp")
        readings.write_parquet(fresh, compression="zstd")
        fresh.replace(path)


def hours_of(lake: Path, trace: str, cluster: str, dialect: str, selection: Sequence[str]) -> Hours:
    """Return the hours of a trace's cluster; `selection` is the server's address and the matchers."""
    return Hours(folder=lake / FOLDER / trace / cluster / f"{dialect}-{_digest(chr(10).join(selection))}")


def read_kept(path: Path) -> pl.DataFrame | None:
    """Return the readings of an hour; None if the file is missing or cannot be read."""
    try:
        found = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
    return found if found.schema == READING else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]

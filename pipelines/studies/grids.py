"""Hours of recorded grids that a study may use: a year and months of it, checked before anything is simulated.

Files are read in `pipelines.simulation.energy.grid_files`. Called by the carbon and cost studies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import zone_files
from pipelines.studies.study import option
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.types import FloatArray


def months_option(default: tuple[int, ...], shown: str) -> tuple[int, ...]:
    """Declare `--months`, the months of the year in which simulations start."""
    return option(
        default,
        name="--months",
        help="Month in which simulations start, 1 to 12 (may be repeated).",
        minimum=1,
        maximum=12,
        shown=shown,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHours:
    """A zone's series of `kind`, and the first moments of the chosen months `starts_ts` and of the months after them.

    The series repeats, so that a run that starts in December may go on; every chosen month itself is covered.
    """

    zone: str
    series: HourlySeries
    starts_ts: FloatArray
    ends_ts: FloatArray
    notes: tuple[str, ...]

    def drawn_ts(self, rng: np.random.Generator) -> float:
        """Draw the Unix time of one hour of the chosen months, all equally likely."""
        hours = ((self.ends_ts - self.starts_ts) / HOUR_S).astype(np.int64)
        hour = int(rng.integers(hours.sum()))
        month = int(np.searchsorted(np.cumsum(hours), hour, side="right"))
        return float(self.starts_ts[month]) + HOUR_S * (hour - int(hours[:month].sum()))


def recorded_hours(
    folder: Path,
    zones: Sequence[str],
    kind: Literal["carbon", "price"],
    *,
    year: int | None,
    months: Sequence[int],
) -> list[RecordedHours]:
    """Read a series of every zone, and check that it covers the months of the year; without both, use all its hours.

    Raises
    ------
    BadUsage
        If a zone has no series of this kind, or one of another year or without a chosen month.
    """
    found: list[RecordedHours] = []
    for zone in dict.fromkeys(zones):
        files = zone_files(folder, zone)
        series = files.carbon if kind == "carbon" else files.price
        if series is None:
            raise BadUsage(f"--zone {zone}: found no file of {kind} in {folder}, expected {kind}_YEAR.csv; add one")
        year = year or (datetime.fromtimestamp(series.start_s, UTC).year if months else None)
        starts_ts, ends_ts = _months(year, months) if year else (np.array([series.start_s]), np.array([series.until_s]))
        if (starts_ts < series.start_s).any() or (ends_ts > series.until_s).any():
            first, last = (datetime.fromtimestamp(ts, UTC) for ts in (series.start_s, series.until_s))
            wanted = f"months {', '.join(map(str, sorted(set(months))))} of {year}" if months else f"year {year}"
            raise BadUsage(
                f"--zone {zone}: found {kind} from {first:%Y-%m-%d} to {last:%Y-%m-%d}, expected all of the {wanted}; "
                "choose --year and --months, or add files"
            )
        found.append(
            RecordedHours(
                zone=zone,
                series=series.going_round(),
                starts_ts=starts_ts,
                ends_ts=ends_ts,
                notes=files.notes,
            )
        )
    return found


def _months(year: int, months: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return the Unix times at which the months begin, and those at which the months after them do; all by default."""
    chosen = sorted(set(months)) or range(1, 13)
    begins = [(year, month) for month in chosen]
    ends = [(year + month // 12, month % 12 + 1) for month in chosen]
    starts_ts, ends_ts = (
        np.array([datetime(*each, 1, tzinfo=UTC).timestamp() for each in moments]) for moments in (begins, ends)
    )
    return starts_ts, ends_ts

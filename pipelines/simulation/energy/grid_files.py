"""Hourly carbon intensity and price from CSV files, by zone: as published, or a site's own of two columns.

How readings become hours is `pipelines.simulation.energy.readings`' matter. Called by `taut simulate` and the
experiments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_columns import KINDS, Kind, read_column
from pipelines.simulation.energy.readings import Repairs, hourly
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S, HourlySeries

Basis = Literal["lca", "direct"]
"""Emissions over a plant's life cycle, or of its operation alone."""

SHOWN: Final = 12
"""How many zones an error lists."""

MOST_FILLED_FRAC: Final = 0.5
"""Of a series' hours; where more have no value, it is the filling that figures would tell of (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneFiles:
    """One zone as its files tell it: series (None where there is no file), and what a reader of figures has to know."""

    zone: str
    carbon: HourlySeries | None
    price: HourlySeries | None
    notes: tuple[str, ...]

    def grid(self, pue: float) -> Grid:
        """Return the zone as a grid that goes round: after the last whole day that both series tell, the first again.

        Raises
        ------
        BadUsage
            If the two series have no hour in common.
        """
        carbon, price = self.carbon, self.price
        if carbon is not None and price is not None:
            carbon, price = _common(carbon, price, self.zone)
        return Grid(
            zone=self.zone,
            carbon=None if carbon is None else carbon.going_round(),
            price=None if price is None else price.going_round(),
            pue=pue,
        )


def zones_of(folder: Path) -> list[str]:
    """Return the zones of a folder: its subfolders with files of carbon or price, or itself where it has such."""
    if not folder.is_dir():
        raise BadUsage(
            f"--grid {folder}: found no such folder, expected one of zones, each with carbon_YEAR.csv or price_YEAR.csv"
        )
    if _files(folder):
        return [folder.resolve().name]
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and _files(each))


def zone_files(folder: Path, zone: str | None = None, *, basis: Basis = "lca") -> ZoneFiles:
    """Read a zone of a folder; without a name the only one there.

    Raises
    ------
    BadUsage
        If there is no such folder or zone, several without a name, a file is not of its format (the line is named), or
        most hours have no value.
    """
    known = zones_of(folder)
    listed = ", ".join([*known[:SHOWN], *(["..."] if len(known) > SHOWN else [])]) or "none"
    if zone is None and len(known) != 1:
        raise BadUsage(f"--grid {folder}: found the zones {listed}; say which with --zone")
    if zone is not None and zone not in known:
        raise BadUsage(f"--zone {zone}: found the zones {listed} in {folder}, expected one of them")
    name = zone or known[0]
    place = folder if _files(folder) else folder / name
    notes: list[str] = []
    series: dict[Kind, HourlySeries | None] = {}
    for kind in KINDS:
        paths = [path for path in _files(place) if path.name.startswith(kind)]
        series[kind], said = _read(paths, kind, basis, name) if paths else (None, f"{name}: no file of {kind}")
        notes.append(said)
    return ZoneFiles(zone=name, carbon=series["carbon"], price=series["price"], notes=tuple(notes))


def _files(folder: Path) -> list[Path]:
    return sorted(path for kind in KINDS for path in folder.glob(f"{kind}*.csv") if path.is_file())


def _read(paths: Sequence[Path], kind: Kind, basis: Basis, zone: str) -> tuple[HourlySeries, str]:
    read = [read_column(path, kind, basis) for path in paths]
    moments_s = np.concatenate([each.moments_s for each in read])
    values = np.concatenate([each.values for each in read])
    named = ", ".join(str(path) for path in paths)
    try:
        series, repairs = hourly(moments_s, values, KINDS[kind].unit)
    except BadInput as error:
        raise BadUsage(f"{named}: {error}") from error
    if repairs.filled > MOST_FILLED_FRAC * len(series):
        raise BadUsage(
            f"{named}: found no value for {repairs.filled} of {len(series)} hours, expected at most "
            f"{MOST_FILLED_FRAC:.0%} to be filled; give hourly values"
        )
    ids = {each.zone_id for each in read} - {None, zone}
    return series, _said(series, repairs, f"{zone}: {KINDS[kind].what(read[0].column)}", ids)


def _said(series: HourlySeries, repairs: Repairs, what: str, ids: set[str | None]) -> str:
    first = datetime.fromtimestamp(series.start_s, UTC)
    said = f"{what}, {len(series)} hours from {first:%Y-%m-%d %H:%M} UTC"
    done = {
        "hours without a value: that of the day before": repairs.filled,
        "hours of several readings: their mean": repairs.merged,
        "readings out of order": repairs.unsorted,
    }
    said += "".join(f"; {count} {why}" for why, count in done.items() if count)
    return said + (f"; its files say {', '.join(sorted(filter(None, ids)))}" if ids else "")


def _common(carbon: HourlySeries, price: HourlySeries, zone: str) -> tuple[HourlySeries, HourlySeries]:
    start_s, until_s = max(carbon.start_s, price.start_s), min(carbon.until_s, price.until_s)
    if until_s <= start_s:
        raise BadUsage(f"{zone}: found carbon and price without a common hour, expected them of the same time")
    cut = [
        HourlySeries(
            start_s=start_s,
            values=each.values[(hours := _hours(each, start_s, until_s))],
            unit=each.unit,
            filled=each.filled[hours],
        )
        for each in (carbon, price)
    ]
    return cut[0], cut[1]


def _hours(series: HourlySeries, start_s: float, until_s: float) -> slice:
    first = int((start_s - series.start_s) / HOUR_S)
    return slice(first, first + int((until_s - start_s) / HOUR_S))

"""Read hourly carbon intensity and price of zones from folders of CSV files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_columns import KINDS, Kind, read_column
from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, Grid, HourlySeries
from scheduler_core.types import FloatArray

__all__ = ["ZoneFiles", "of_one_year", "series_of", "zone_files", "zones_of"]

MOST_FILLED_FRAC: Final = 0.5  # of the hours of a series (our choice)
LONGEST_GAP_H: Final = 7 * HOURS_PER_DAY  # that is filled
MOST_HOURS: Final = 100 * 366 * HOURS_PER_DAY  # a century; a longer series suggests wrong time stamps
SHOWN: Final = 12  # zones in an error message


class Repairs(NamedTuple):
    """Counts of repairs to a series: hours averaged from several readings, hours filled, and stamps out of order."""

    merged: int
    filled: int
    unsorted: int


def hourly(moments_s: FloatArray, values: FloatArray, unit: str) -> tuple[HourlySeries, Repairs]:
    """Return one value for every hour from the first reading to the last, and the counts of repairs.

    Several readings within an hour (half-hourly ones, or the same hour twice) are averaged. An hour without a value
    gets the value of 24 hours before, or on the first day the value of the hour before (our rule). No value is filled
    from later hours, so that no forecast sees the future.

    `moments_s` (n,) are the Unix times of the readings in any order, `values` (n,) is NaN if a reading is empty.

    Examples
    --------
    >>> series, repairs = hourly(np.array([0.0, 1800.0, 7200.0]), np.array([1.0, 3.0, 5.0]), "g/kWh")
    >>> series.values.tolist(), series.filled.tolist(), repairs.merged, repairs.filled
    ([2.0, 2.0, 5.0], [False, True, False], 1, 1)
    """
    known = ~np.isnan(values)
    if not known.any():
        raise BadInput(f"readings: found {len(values)} without a value, expected at least one value")
    unsorted = int((np.diff(moments_s) < 0.0).sum())
    hours = np.floor(moments_s[known] / HOUR_S).astype(np.int64)
    first, count = int(hours.min()), int(hours.max() - hours.min()) + 1
    if count > MOST_HOURS:
        raise BadInput(
            f"readings: found {count} hours in all, expected at most {MOST_HOURS} (a century); check the stamps"
        )
    times = np.bincount(hours - first, minlength=count)
    sums = np.bincount(hours - first, weights=values[known], minlength=count)
    there = np.flatnonzero(times)
    gaps = np.diff(there) - 1
    if gaps.max(initial=0) > LONGEST_GAP_H:
        at = int(gaps.argmax())
        begin = np.datetime64(int((first + there[at] + 1) * HOUR_S), "s")
        raise BadInput(
            f"readings: found a gap of {gaps[at]} hours from {begin} (UTC) on, expected at most "
            f"{LONGEST_GAP_H}; complete the file, or cut it at the gap"
        )
    merged = sums / np.maximum(times, 1)
    for hour in np.flatnonzero(times == 0).tolist():
        # Fill in order of time, because the value of a filled hour may fill a later one.
        merged[hour] = merged[hour - HOURS_PER_DAY if hour >= HOURS_PER_DAY else hour - 1]
    series = HourlySeries(start_s=first * HOUR_S, values=merged, unit=unit, filled=times == 0)
    return series, Repairs(merged=int((times > 1).sum()), filled=int((times == 0).sum()), unsorted=unsorted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneFiles:
    """Carbon intensity and price of one zone (None without a file), and notes on its files to print with results."""

    zone: str
    carbon: HourlySeries | None
    price: HourlySeries | None
    notes: tuple[str, ...]

    def grid(self, pue: float) -> Grid:
        """Return the zone as a periodic grid: after the last whole day of both series it starts again."""
        carbon, price = self.carbon, self.price
        if carbon is not None and price is not None:
            carbon, price = _common(carbon, price, self.zone)
        return Grid(
            zone=self.zone,
            carbon=None if carbon is None else carbon.going_round(),
            price=None if price is None else price.going_round(),
            pue=pue,
        )

    @property
    def begins(self) -> datetime:
        """Return the moment (UTC) at which the later of the two series begins."""
        known = [each.start_s for each in (self.carbon, self.price) if each is not None]
        return datetime.fromtimestamp(max(known), UTC)

    def of_year(self, year: int) -> "ZoneFiles":
        """Return only the hours of a year (UTC)."""
        first_s, after_s = (datetime(each, 1, 1, tzinfo=UTC).timestamp() for each in (year, year + 1))
        cut: dict[str, HourlySeries] = {}
        for kind, series in (("carbon", self.carbon), ("price", self.price)):
            if series is None:
                continue
            if series.start_s > first_s or series.until_s < after_s:
                first, last = (datetime.fromtimestamp(ts, UTC) for ts in (series.start_s, series.until_s))
                raise BadUsage(
                    f"--zone {self.zone}: found {kind} from {first:%Y-%m-%d} to {last:%Y-%m-%d}, expected all of "
                    f"{year}; choose --year, or add {kind}_{year}.csv"
                )
            cut[kind] = _cut(series, first_s, after_s)
        return replace(self, carbon=cut.get("carbon"), price=cut.get("price"))


def of_one_year(files: Sequence[ZoneFiles], year: int | None) -> list[ZoneFiles]:
    """Return the files of several zones, cut to `year` if it is given."""
    if year is not None:
        return [each.of_year(year) for each in files]
    for each in files[1:]:
        if each.begins.year != files[0].begins.year:
            raise BadUsage(
                f"--zone {each.zone}: found series from {each.begins.year} on, expected them from "
                f"{files[0].begins.year} on as those of {files[0].zone}; choose --year, or add files"
            )
    return list(files)


def zones_of(folder: Path) -> list[str]:
    """Return the zones of a folder: its subfolders with carbon or price files, or the folder itself if it has any."""
    if not folder.is_dir():
        raise BadUsage(
            f"--grid {folder}: found no such folder, expected subfolders by zone with carbon_YEAR.csv or "
            "price_YEAR.csv (`taut fetch energy` gets eight zones)"
        )
    if _files(folder):
        return [folder.resolve().name]
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and _files(each))


def zone_files(folder: Path, zone: str | None = None) -> ZoneFiles:
    """Read the files of a zone in a folder; `zone` may be None if the folder has only one."""
    known = zones_of(folder)
    listed = ", ".join([*known[:SHOWN], *(["..."] if len(known) > SHOWN else [])]) or "none"
    if zone is None and len(known) != 1:
        raise BadUsage(f"--grid {folder}: found the zones {listed}, expected one; choose with --zone")
    if zone is not None and zone not in known:
        raise BadUsage(f"--zone {zone}: found the zones {listed} in {folder}, expected one of them")
    name = zone or known[0]
    place = folder if _files(folder) else folder / name
    notes: list[str] = []
    series: dict[Kind, HourlySeries | None] = {}
    for kind in KINDS:
        paths = [path for path in _files(place) if path.name.startswith(kind)]
        series[kind], note = _read(paths, kind, name) if paths else (None, f"{name}: no file of {kind}")
        notes.append(note)
    return ZoneFiles(zone=name, carbon=series["carbon"], price=series["price"], notes=tuple(notes))


def series_of(grid: Path, zone: str | None, kind: Kind, since: float, until: float) -> HourlySeries:
    """Return the series of one kind from a CSV file, or from a zone of a folder.

    It has values from `since` (Unix time) on, and until `until` if that is later.
    """
    if grid.is_file():
        if zone is not None:
            raise BadUsage(f"--zone {zone}: found with the file {grid}, expected a folder; leave one of them out")
        series: HourlySeries | None = _read([grid], kind, grid.stem)[0]
    else:
        files = zone_files(grid, zone)
        series = files.carbon if kind == "carbon" else files.price
    if series is None:
        raise BadUsage(f"--grid {grid}: found no file of {kind}, expected {kind}_*.csv; add one, or give its path")
    if not series.start_s <= since < series.until_s or until > series.until_s:
        begins, ends, first, last = (
            f"{datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M}" for ts in (series.start_s, series.until_s, since, until)
        )
        raise BadUsage(
            f"--grid {grid}: found values from {begins} until {ends} (UTC), expected those from {first} until {last}; "
            "give --at, fewer --rounds, or a longer file"
        )
    return series


def _files(folder: Path) -> list[Path]:
    return sorted(path for kind in KINDS for path in folder.glob(f"{kind}*.csv") if path.is_file())


def _read(paths: Sequence[Path], kind: Kind, zone: str) -> tuple[HourlySeries, str]:
    read = [read_column(path, kind) for path in paths]
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
            f"{MOST_FILLED_FRAC:.0%} without a value; give hourly values"
        )
    ids = {each.zone_id for each in read} - {None, zone}
    return series, _note(series, repairs, f"{zone}: {KINDS[kind].quantity} ({read[0].name})", ids)


def _note(series: HourlySeries, repairs: Repairs, what: str, ids: set[str | None]) -> str:
    first = datetime.fromtimestamp(series.start_s, UTC)
    text = f"{what}, {len(series)} hours from {first:%Y-%m-%d %H:%M} UTC"
    done = {
        "hours without a value, filled from the day before": repairs.filled,
        "hours averaged from several readings": repairs.merged,
        "readings out of order": repairs.unsorted,
    }
    text += "".join(f"; {count} {why}" for why, count in done.items() if count)
    return text + (f"; the files name the zone {', '.join(sorted(filter(None, ids)))}" if ids else "")


def _common(carbon: HourlySeries, price: HourlySeries, zone: str) -> tuple[HourlySeries, HourlySeries]:
    start_s, until_s = max(carbon.start_s, price.start_s), min(carbon.until_s, price.until_s)
    if until_s <= start_s:
        raise BadUsage(f"{zone}: found carbon and price without a common hour, expected files of the same year")
    return _cut(carbon, start_s, until_s), _cut(price, start_s, until_s)


def _cut(series: HourlySeries, start_s: float, until_s: float) -> HourlySeries:
    first = int((start_s - series.start_s) / HOUR_S)
    hours = slice(first, first + int((until_s - start_s) / HOUR_S))
    return replace(series, start_s=start_s, values=series.values[hours], filled=series.filled[hours])

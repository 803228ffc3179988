"""Read hourly carbon intensity and price of a zone from CSV files: published ones, or a site's own with two columns.

A file has a column of time stamps and one of values; `KINDS` has the accepted names.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import CARBON_UNIT, PRICE_UNIT, Grid
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray

__all__ = ["ZoneFiles", "moment_of", "of_one_year", "series_of", "zone_files", "zones_of"]

Kind = Literal["carbon", "price"]
Basis = Literal["lca", "direct"]
"""Basis of carbon intensity: emissions over a power plant's life cycle (lca), or of its operation alone (direct)."""

STAMPS: Final = ("ts", "Datetime (UTC)")
ZONE_ID: Final = "Zone Id"
UNITLESS: Final = "value"
"""Name of a column of values that does not state their unit."""

MOST_BYTES: Final = 64 * 2**20  # five times the size of a file with a century of hourly values
YEARS: Final = (1970, 2200)  # first valid year of a time stamp, and first year after the last valid one
MOST_FILLED_FRAC: Final = 0.5  # of the hours of a series (our choice)
LONGEST_GAP_H: Final = 7 * HOURS_PER_DAY  # that is filled
MOST_HOURS: Final = 100 * 366 * HOURS_PER_DAY  # a century; a longer series suggests wrong time stamps
SHOWN: Final = 12  # zones in an error message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Rules for files of one kind (carbon intensity or price): columns, units and bounds.

    `published` is the pattern of the column's name in published files, in lower case, and `own` are the names in a
    site's own files; both with the factor that converts values to `unit`. Values (in `unit`) lie within `bounds`.
    `assumed_unit` is that of a column that states none; if all of its values are below `mistaken_below`, they are
    probably in `mistaken_for`, and the file is refused.
    """

    quantity: str
    unit: str
    published: tuple[str, float]
    published_name: str
    own: Mapping[str, float]
    bounds: tuple[float, float]
    assumed_unit: str
    mistaken_below: float
    mistaken_for: str

    def factor(self, column: str, basis: Basis) -> float | None:
        """Return the factor of a column's values to `unit`; None if it is another column, or of the other basis."""
        end = rf" *(?:\((?:{_ENDS[basis]})\))?"
        for pattern, factor in ((self.published), *((re.escape(name), each) for name, each in self.own.items())):
            if re.fullmatch(pattern + end, column.lower()):
                return factor
        return None


KINDS: Final[dict[Kind, _Kind]] = {
    "carbon": _Kind(
        quantity="carbon intensity",
        unit=CARBON_UNIT,
        published=("carbon intensity.*/kwh", 1.0),
        published_name="Carbon Intensity gCO2eq/kWh (LCA) or (direct)",
        own={"carbon_g_per_kwh": 1.0, UNITLESS: 1.0},
        bounds=(0.0, 2500.0),
        assumed_unit="g/kWh",
        mistaken_below=1.5,
        mistaken_for="kg/kWh",
    ),
    "price": _Kind(
        quantity="price",
        unit=PRICE_UNIT,
        published=(r"price \(usd/mwh.*\)", 1e-3),
        published_name="Price (USD/MWh)",
        own={"price_usd_per_mwh": 1e-3, "price_usd_per_kwh": 1.0, UNITLESS: 1e-3},
        bounds=(-25.0, 25.0),
        assumed_unit="USD/MWh",
        mistaken_below=1.0,
        mistaken_for="USD/kWh",
    ),
}

_ENDS: Final = {"lca": "lca|life cycle", "direct": "direct"}
"""For each basis of emissions, the ending in brackets of the carbon column's name in published files."""


class _Column(NamedTuple):
    """The readings (n) of one file: the column's name, Unix times, values (NaN if empty), and the zone's name."""

    name: str
    moments_s: FloatArray
    values: FloatArray
    zone_id: str | None


def _read_column(path: Path, kind: Kind, basis: Basis) -> _Column:
    """Read the column of carbon intensities or prices of one file; time stamps without an offset are UTC."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadUsage(f"{path}: found {size} bytes, expected at most {MOST_BYTES}; split it by years")
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte-order mark
        frame = pl.read_csv(text.encode(), infer_schema=False) if text.strip() else pl.DataFrame()
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a CSV file of hours") from error
    except (UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0][:160]
        raise BadUsage(f"{path} is not CSV text: {reason}; expected columns such as ts,value") from error
    rules = KINDS[kind]
    frame = frame.rename(str.strip).filter(~pl.all_horizontal(pl.all().is_null())).fill_null("")
    stamp = next((name for name in STAMPS if name in frame.columns), None)
    factors = {name: factor for name in frame.columns if (factor := rules.factor(name, basis)) is not None}
    if stamp is None or not factors:
        raise BadUsage(f"{path}: {_no_columns(frame.columns, rules)}")
    name, factor = next(iter(factors.items()))
    lines = [(f"{path}, line {line}", *row) for line, row in enumerate(frame.select(stamp, name).iter_rows(), start=2)]
    moments = [moment_of(text, where).timestamp() for where, text, _ in lines]
    values = np.array([_value(text, factor, rules, where) for where, _, text in lines])
    zone = frame[ZONE_ID][-1] if ZONE_ID in frame.columns and len(frame) else None
    written = np.abs(values[~np.isnan(values)]) / factor
    if name == UNITLESS and len(written) and 0.0 < written.max() < rules.mistaken_below:
        raise BadUsage(
            f"{path}: found no value above {written.max():g} in the column {UNITLESS!r}, expected "
            f"{rules.assumed_unit}; they look like {rules.mistaken_for}: name the column by its unit, such as "
            f"{', '.join(each for each in rules.own if each != UNITLESS)}"
        )
    return _Column(name, np.array(moments), values, zone)


def _no_columns(header: Sequence[str], rules: _Kind) -> str:
    """Return why a header lacks a column of time stamps or of values."""
    if len(header) == 1 and ";" in header[0]:
        return f"found {header[0][:160]!r} in one column, expected columns separated by commas (and a point in numbers)"
    return (
        f"found the columns {','.join(header)[:160]!r}, expected {' or '.join(f'ts,{name}' for name in rules.own)}, or "
        f"those of the published files: Datetime (UTC) and {rules.published_name}"
    )


def moment_of(text: str, where: str) -> datetime:
    """Parse an ISO 8601 date and time, and return it in UTC; without an offset it is read as UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadUsage(
            f"{where}: found {text[:40]!r}, expected a moment such as 2023-01-31T17:00:00+01:00 (or UTC)"
        ) from None
    if not YEARS[0] <= moment.year < YEARS[1]:
        raise BadUsage(f"{where}: found {text[:40]!r}, expected a year from {YEARS[0]} to {YEARS[1] - 1}")
    return moment


def _value(text: str, factor: float, rules: _Kind, where: str) -> float:
    """Return a value in the unit of its kind, NaN for an empty field."""
    if not text.strip():
        return math.nan
    unit = rules.unit if factor == 1.0 else rules.assumed_unit
    try:
        value = float(text) * factor
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadUsage(
            f"{where}: found {text[:40]!r}, expected a number of {unit}; leave the field empty for an unknown hour"
        )
    lowest, highest = rules.bounds
    if not lowest <= value <= highest:
        raise BadUsage(
            f"{where}: found {text[:40]!r}, expected {lowest / factor:g} to {highest / factor:g} {unit}; is it in "
            "another unit?"
        )
    return value


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
            f"--grid {folder}: found no such folder, expected subfolders by zone with carbon_YEAR.csv or price_YEAR.csv"
        )
    if _files(folder):
        return [folder.resolve().name]
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and _files(each))


def zone_files(folder: Path, zone: str | None = None, *, basis: Basis = "lca") -> ZoneFiles:
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
        series[kind], note = _read(paths, kind, basis, name) if paths else (None, f"{name}: no file of {kind}")
        notes.append(note)
    return ZoneFiles(zone=name, carbon=series["carbon"], price=series["price"], notes=tuple(notes))


def series_of(grid: Path, zone: str | None, kind: Kind, since: float, until: float) -> HourlySeries:
    """Return the series of one kind from a CSV file, or from a zone of a folder.

    It has values from `since` (Unix time) on, and until `until` if that is later.
    """
    if grid.is_file():
        if zone is not None:
            raise BadUsage(f"--zone {zone}: found with the file {grid}, expected a folder; leave one of them out")
        series: HourlySeries | None = _read([grid], kind, "lca", grid.stem)[0]
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


def _read(paths: Sequence[Path], kind: Kind, basis: Basis, zone: str) -> tuple[HourlySeries, str]:
    read = [_read_column(path, kind, basis) for path in paths]
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
    return series, _note(series, repairs, f"{zone}: {_described(read[0].name, KINDS[kind])}", ids)


def _described(column: str, rules: _Kind) -> str:
    return f"{rules.quantity} ({f'assumed to be in {rules.assumed_unit}' if column == UNITLESS else column})"


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

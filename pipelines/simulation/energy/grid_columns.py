"""Read one CSV file of an electricity grid: time stamps, and one column of carbon intensities or prices.

Errors name the invalid line. The accepted columns are in `KINDS`.
Called by `pipelines.simulation.energy.grid_files` and `taut simulate`.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np

from pipelines.errors import BadUsage
from scheduler_core.planning.grid import CARBON_UNIT, PRICE_UNIT
from scheduler_core.types import FloatArray

__all__ = ["moment_of"]

Kind = Literal["carbon", "price"]

STAMPS: Final = ("ts", "Datetime (UTC)")
ZONE_ID: Final = "Zone Id"
UNITLESS: Final = "value"
"""Name of a column of values that does not state their unit."""

MOST_BYTES: Final = 64 * 2**20
"""Maximum size of a file: five times the size of a file with a century of hourly values."""

YEARS: Final = (1970, 2200)
"""First valid year of a time stamp, and first year after the last valid one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOf:
    """Rules for files of one kind (carbon intensity or price): columns, units and bounds.

    Attributes
    ----------
    unit
        Unit of the values after conversion.
    factors
        Factor that converts a column's values to `unit`, by the beginning and the end of its name in lower case; the
        first match counts.
    bounds
        Smallest and largest valid value, in `unit`.
    assumed_unit
        Unit of the values if the name of the column states none.
    mistaken_below, mistaken_for
        If all values of a column without a unit are below `mistaken_below`, they are probably in the unit
        `mistaken_for`, and the file is refused.
    published
        Name of the column in the published files, for error messages.
    """

    unit: str
    factors: Mapping[tuple[str, str], float]
    bounds: tuple[float, float]
    assumed_unit: str
    mistaken_below: float
    mistaken_for: str
    published: str

    def what(self, column: str) -> str:
        """Return a description of a column: its quantity and unit."""
        unit = f"assumed to be in {self.assumed_unit}" if column == UNITLESS else column
        return f"{'carbon intensity' if self.unit == CARBON_UNIT else 'price'} ({unit})"


KINDS: Final[dict[Kind, KindOf]] = {
    "carbon": KindOf(
        unit=CARBON_UNIT,
        factors={("carbon intensity", "/kwh"): 1.0, ("carbon_g_per_kwh", ""): 1.0, (UNITLESS, ""): 1.0},
        bounds=(0.0, 2500.0),
        assumed_unit="g/kWh",
        mistaken_below=1.5,
        mistaken_for="kg/kWh",
        published="Carbon Intensity gCO2eq/kWh (LCA) or (direct)",
    ),
    "price": KindOf(
        unit=PRICE_UNIT,
        factors={
            ("price (usd/mwh", ")"): 1e-3,
            ("price_usd_per_mwh", ""): 1e-3,
            ("price_usd_per_kwh", ""): 1.0,
            (UNITLESS, ""): 1e-3,
        },
        bounds=(-25.0, 25.0),
        assumed_unit="USD/MWh",
        mistaken_below=1.0,
        mistaken_for="USD/kWh",
        published="Price (USD/MWh)",
    ),
}

_ENDS: Final = {"lca": ("(lca)", "(life cycle)"), "direct": ("(direct)",)}
"""For each basis of emissions, the endings of the carbon column's name in published files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The readings (n) of one file: Unix times, values (NaN if empty), the column's name and the zone's name."""

    column: str
    moments_s: FloatArray
    values: FloatArray
    zone_id: str | None


def read_column(path: Path, kind: Kind, basis: str) -> Column:
    """Read the column of carbon intensities or prices of one file; time stamps without an offset are UTC.

    Raises
    ------
    BadUsage
        If the file cannot be read, is too large, lacks the columns, or a line has an invalid stamp or number; the error
        names the line.
    """
    moments_s: list[float] = []
    values: list[float] = []
    zone_id: str | None = None
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadUsage(
                f"{path}: found {path.stat().st_size} bytes, expected at most {MOST_BYTES}; split it by years"
            )
        with path.open(encoding="utf-8-sig", newline="") as text:  # spreadsheets write a byte-order mark
            lines = csv.reader(text)
            header = [name.strip() for name in next(lines, [])]
            stamp, at, factor = _columns(header, kind, basis, path)
            zone_at = header.index(ZONE_ID) if ZONE_ID in header else None
            for fields in lines:
                if not fields:
                    continue
                where = f"{path}, line {lines.line_num}"
                if len(fields) != len(header):
                    raise BadUsage(f"{where}: found {len(fields)} fields, expected {len(header)} as in the header")
                moments_s.append(moment_of(fields[stamp], where).timestamp())
                values.append(_value(fields[at], factor, kind, where))
                zone_id = fields[zone_at] if zone_at is not None else None
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a CSV file of hours") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadUsage(f"{path} is not CSV text: {error}; expected columns such as ts,value") from error
    column = Column(column=header[at], moments_s=np.array(moments_s), values=np.array(values), zone_id=zone_id)
    _check_unit(column, factor, kind, path)
    return column


def _columns(header: Sequence[str], kind: Kind, basis: str, path: Path) -> tuple[int, int, float]:
    """Return the positions of the time stamp and the value in a line, and the factor to the unit of the kind."""
    stamp = next((header.index(name) for name in STAMPS if name in header), None)
    if stamp is not None:
        for (first, last), factor in KINDS[kind].factors.items():
            for at, name in enumerate(header):
                small = name.lower()
                bare = next((small.removesuffix(end).strip() for end in _ENDS[basis] if small.endswith(end)), small)
                matches = bare != small or not small.endswith(tuple(end for ends in _ENDS.values() for end in ends))
                if matches and bare.startswith(first) and bare.endswith(last) and (last or bare == first):
                    return stamp, at, factor
    if len(header) == 1 and ";" in header[0]:
        raise BadUsage(
            f"{path}: found {header[0][:160]!r} in one column, expected columns separated by commas (and a point in "
            "numbers)"
        )
    known = " or ".join(f"ts,{first}" for first, last in KINDS[kind].factors if not last)
    raise BadUsage(
        f"{path}: found the columns {','.join(header)[:160]!r}, expected {known}, or those of the published files: "
        f"Datetime (UTC) and {KINDS[kind].published}"
    )


def moment_of(text: str, where: str) -> datetime:
    """Parse an ISO 8601 date and time, and return it in UTC; without an offset it is read as UTC.

    Raises
    ------
    BadUsage
        If the text is not a date and time, or its year is out of range; the error begins with `where`.
    """
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


def _value(text: str, factor: float, kind: Kind, where: str) -> float:
    if not text.strip():
        return math.nan
    try:
        value = float(text) * factor
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadUsage(
            f"{where}: found {text[:40]!r}, expected a number of {_unit(factor, kind)}; leave the field empty for an "
            "unknown hour"
        )
    lowest, highest = KINDS[kind].bounds
    if not lowest <= value <= highest:
        raise BadUsage(
            f"{where}: found {text[:40]!r}, expected {lowest / factor:g} to {highest / factor:g} "
            f"{_unit(factor, kind)}; is it in another unit?"
        )
    return value


def _check_unit(column: Column, factor: float, kind: Kind, path: Path) -> None:
    rules = KINDS[kind]
    written = np.abs(column.values[~np.isnan(column.values)]) / factor
    if column.column == UNITLESS and len(written) and 0.0 < written.max() < rules.mistaken_below:
        raise BadUsage(
            f"{path}: found no value above {written.max():g} in the column {UNITLESS!r}, expected "
            f"{rules.assumed_unit}; they look like {rules.mistaken_for}: name the column by its unit, such as "
            f"{', '.join(first for first, last in rules.factors if not last and first != UNITLESS)}"
        )


def _unit(factor: float, kind: Kind) -> str:
    return KINDS[kind].unit if factor == 1.0 else KINDS[kind].assumed_unit

"""Read the column of carbon intensities or prices of one CSV file: a published one, or a site's own with two columns.

`KINDS` has the accepted names of columns, their units and bounds.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from scheduler_core.planning.hourly import CARBON_UNIT, PRICE_UNIT
from scheduler_core.types import FloatArray

__all__ = ["moment_of"]

Kind = Literal["carbon", "price"]

STAMPS: Final = ("ts", "Datetime (UTC)")
ZONE_ID: Final = "Zone Id"

MOST_BYTES: Final = 64 * 2**20  # five times the size of a file with a century of hourly values
YEARS: Final = (1970, 2200)  # first valid year of a time stamp, and first year after the last valid one


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules for files of one kind (carbon intensity or price): columns, units and bounds.

    `own` is the name of the column in a site's own files, in `unit`. `published` is the pattern of its name in
    published files, and `factor` converts their values to `unit`. Values (in `unit`) lie within `bounds`.
    """

    quantity: str
    unit: str
    own: str
    published: str
    published_name: str
    factor: float
    bounds: tuple[float, float]

    def factor_of(self, column: str) -> float | None:
        """Return the factor of a column's values to `unit`; None if it is another column."""
        if column == self.own:
            return 1.0
        return self.factor if re.fullmatch(self.published, column, re.IGNORECASE) else None


KINDS: Final[dict[Kind, Rules]] = {
    "carbon": Rules(
        quantity="carbon intensity",
        unit=CARBON_UNIT,
        own="carbon_g_per_kwh",
        published=r"carbon intensity.*/kwh *(\((lca|life cycle)\))?",
        published_name="Carbon Intensity gCO2eq/kWh (LCA)",
        factor=1.0,
        bounds=(0.0, 2500.0),
    ),
    "price": Rules(
        quantity="price",
        unit=PRICE_UNIT,
        own="price_usd_per_kwh",
        published=r"price \(usd/mwh.*\)",
        published_name="Price (USD/MWh)",
        factor=1e-3,
        bounds=(-25.0, 25.0),
    ),
}
"""The carbon intensity is that of a power plant's life cycle (LCA)."""


class Column(NamedTuple):
    """The readings (n) of one file: the column's name, Unix times, values (NaN if empty), and the zone's name."""

    name: str
    moments_s: FloatArray
    values: FloatArray
    zone_id: str | None


def read_column(path: Path, kind: Kind) -> Column:
    """Read the column of carbon intensities or prices of one file; time stamps without an offset are UTC."""
    rules = KINDS[kind]
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadUsage(f"{path}: found {size} bytes, expected at most {MOST_BYTES}; split it by years")
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte-order mark
        frame = pl.read_csv(text.encode(), infer_schema=False) if text.strip() else pl.DataFrame()
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a CSV file of hours") from error
    except (UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0][:160]
        raise BadUsage(f"{path} is not CSV text: {reason}; expected the columns ts,{rules.own}") from error
    frame = frame.rename(str.strip).filter(~pl.all_horizontal(pl.all().is_null())).fill_null("")
    stamp = next((name for name in STAMPS if name in frame.columns), None)
    factors = {name: factor for name in frame.columns if (factor := rules.factor_of(name)) is not None}
    if stamp is None or not factors:
        raise BadUsage(f"{path}: {_no_columns(frame.columns, rules)}")
    name, factor = next(iter(factors.items()))
    lines = [(f"{path}, line {line}", *row) for line, row in enumerate(frame.select(stamp, name).iter_rows(), start=2)]
    moments = [moment_of(text, where).timestamp() for where, text, _ in lines]
    values = np.array([_value(text, factor, rules, where) for where, _, text in lines])
    zone = frame[ZONE_ID][-1] if ZONE_ID in frame.columns and len(frame) else None
    return Column(name, np.array(moments), values, zone)


def _no_columns(header: Sequence[str], rules: Rules) -> str:
    """Return why a header lacks a column of time stamps or of values."""
    if len(header) == 1 and ";" in header[0]:
        return f"found {header[0][:160]!r} in one column, expected columns separated by commas (and a point in numbers)"
    return (
        f"found the columns {','.join(header)[:160]!r}, expected ts,{rules.own}, or those of the published files: "
        f"Datetime (UTC) and {rules.published_name}"
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


def _value(text: str, factor: float, rules: Rules, where: str) -> float:
    """Return a value in the unit of its kind, NaN for an empty field."""
    if not text.strip():
        return math.nan
    try:
        value = float(text) * factor
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadUsage(f"{where}: found {text[:40]!r}, expected a number; leave the field empty for an unknown hour")
    lowest, highest = rules.bounds
    if not lowest <= value <= highest:
        raise BadUsage(
            f"{where}: found {text[:40]!r}, which is not within {lowest:g} to {highest:g} {rules.unit}; is it in "
            "another unit?"
        )
    return value

"""Hourly series with exact integrals, and the grid of a site: its hourly carbon intensity and price."""

from dataclasses import dataclass, field, replace
from typing import Final, overload

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["CARBON_UNIT", "HOURS_PER_DAY", "HOUR_S", "JOULES_PER_KWH", "MOST_PUE", "PRICE_UNIT", "Grid", "HourlySeries"]

HOUR_S: Final = 3600.0
HOURS_PER_DAY: Final = 24
JOULES_PER_KWH: Final = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HourlySeries:
    """Series of hourly values: `values[i]` is valid for the hour that begins i hours after `start_s`.

    - `start_s`: Unix time (UTC) at which the first hour begins, a whole hour.
    - `values`: one finite value per hour, at least one; shape (n,).
    - `unit`: unit of the values, such as "g/kWh".
    - `filled`: true for hours whose value was not reported but filled in; shape (n,), by default all false.
    - `wrap`: whether the series repeats before its first and after its last hour. If not, a moment outside is a
      `BadInput`, as are values that are not finite.

    Examples
    --------
    >>> day = HourlySeries(start_s=0.0, values=np.array([100.0, 300.0]), unit="g/kWh")
    >>> day.at(3600.0), day.integral(1800.0, 7200.0), day.mean(1800.0, 5400.0)
    (300.0, 350.0, 200.0)
    """

    start_s: float
    values: FloatArray
    unit: str
    filled: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    wrap: bool = False
    _sums: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        filled = self.filled if len(self.filled) else np.zeros(len(values), dtype=np.bool_)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or filled.shape != values.shape:
            raise BadInput(
                f"hourly series: found values of shape {values.shape} ({int((~np.isfinite(values)).sum())} not finite) "
                f"and marks of shape {filled.shape}, expected as many finite values as marks, at least one"
            )
        if not np.isfinite(self.start_s) or self.start_s % HOUR_S:
            raise BadInput(f"hourly series: found a begin at {self.start_s} s, expected the begin of an hour")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "filled", filled)
        object.__setattr__(self, "_sums", np.concatenate([[0.0], np.cumsum(values)]))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def until_s(self) -> float:
        """Return the Unix time at which the last hour ends."""
        return self.start_s + len(self.values) * HOUR_S

    @overload
    def at(self, ts: float) -> float: ...
    @overload
    def at(self, ts: FloatArray) -> FloatArray: ...
    def at(self, ts: float | FloatArray) -> float | FloatArray:
        """Return the value at a moment (Unix time), or the values at an array of moments."""
        found = self.values[self.hour(np.asarray(ts, dtype=np.float64))]
        return float(found) if np.ndim(ts) == 0 else np.asarray(found, dtype=np.float64)

    def hour(self, ts: FloatArray) -> IntArray:
        """Return the index of the hour that contains each moment."""
        hours = np.floor((ts - self.start_s) / HOUR_S)
        beyond = ~np.isfinite(hours) if self.wrap else ~((hours >= 0) & (hours < len(self.values)))
        if beyond.any():
            self._refuse(float(ts[beyond].flat[0]))
        return np.asarray(hours % len(self.values), dtype=np.int64)

    @overload
    def integral(self, from_s: float, until_s: float) -> float: ...
    @overload
    def integral(self, from_s: FloatArray, until_s: FloatArray) -> FloatArray: ...
    def integral(self, from_s: float | FloatArray, until_s: float | FloatArray) -> float | FloatArray:
        """Return the exact integral (value times hours) between two moments, negative in reverse order."""
        between = self._up_to(np.asarray(until_s, dtype=np.float64)) - self._up_to(np.asarray(from_s, dtype=np.float64))
        return float(between) if np.ndim(from_s) == 0 else np.asarray(between, dtype=np.float64)

    def mean(self, from_s: float, until_s: float) -> float:
        """Return the time average between two moments; if the moments are equal, the value at that moment."""
        if until_s == from_s:
            return self.at(from_s)
        return self.integral(from_s, until_s) / ((until_s - from_s) / HOUR_S)

    def truncated(self, until_s: float) -> "HourlySeries":
        """Return the series of only the hours that begin before `until_s`, which are those known at that moment."""
        count = int(np.ceil((until_s - self.start_s) / HOUR_S))
        return replace(self, values=self.values[: max(count, 0)], filled=self.filled[: max(count, 0)])

    def going_round(self) -> "HourlySeries":
        """Return the series repeating without end (`wrap`), without an incomplete last day, to keep days aligned."""
        count = len(self.values) - len(self.values) % HOURS_PER_DAY or len(self.values)
        return replace(self, values=self.values[:count], filled=self.filled[:count], wrap=True)

    def _up_to(self, ts: FloatArray) -> FloatArray:
        """Return the integral (value times hours) from the start of the series to each moment."""
        hours = (ts - self.start_s) / HOUR_S
        count = len(self.values)
        if self.wrap:
            rounds = np.floor(hours / count)
            return np.asarray(rounds * self._sums[-1] + self._within(hours - rounds * count), dtype=np.float64)
        beyond = ~((hours >= 0.0) & (hours <= count))
        if beyond.any():
            self._refuse(float(ts[beyond].flat[0]))
        return self._within(hours)

    def _within(self, hours: FloatArray) -> FloatArray:
        whole = np.minimum(hours.astype(np.int64), len(self.values) - 1)
        return np.asarray(self._sums[whole] + self.values[whole] * (hours - whole), dtype=np.float64)

    def _refuse(self, ts: float) -> None:
        first, last = (np.datetime64(int(each), "s") for each in (self.start_s, self.until_s))
        found = np.datetime64(int(ts), "s") if np.isfinite(ts) else ts
        raise BadInput(
            f"hourly series: found the moment {found}, expected one from {first} to {last} (UTC); give a longer "
            "series, or one that wraps"
        )


CARBON_UNIT: Final = "g/kWh"
PRICE_UNIT: Final = "USD/kWh"
MOST_PUE: Final = 10.0
"""Maximum PUE accepted, above that of any real site; a larger value is refused as a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Carbon and price series of one grid zone, and the PUE of a site in that zone; an unavailable series is None.

    `pue` is the energy of the site divided by the energy of its machines. Both series are per kWh of the site.
    """

    zone: str
    carbon: HourlySeries | None = None
    price: HourlySeries | None = None
    pue: float = 1.0

    def __post_init__(self) -> None:
        for series, unit in ((self.carbon, CARBON_UNIT), (self.price, PRICE_UNIT)):
            if series is not None and series.unit != unit:
                raise BadInput(f"grid {self.zone}: found a series in {series.unit!r}, expected {unit}")
        if not 1.0 <= self.pue <= MOST_PUE:
            raise BadInput(f"grid {self.zone}: found a PUE of {self.pue}, expected 1 to {MOST_PUE:g}")

"""Integrate power over spans of time on a grid: exact energy, carbon and cost, and their sums.

The power of runs is computed in `accounting`. Called by `accounting`, `meters`, `tables` and the studies.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.workload import Outages
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.types import FloatArray, IntArray

__all__ = ["WATTS_PER_KW", "Amounts", "by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums of energy, carbon and cost; see `Amounts`."""

    kwh: float
    carbon_g: float
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Columns of energy, carbon and cost.

    Energy is of the machines alone; carbon and cost include PUE, and are NaN if the grid lacks the series.

    >>> one = np.array([1.0, 2.0])
    >>> Amounts(kwh=one, carbon_g=one * 300.0, cost_usd=-one).total()
    Totals(kwh=3.0, carbon_g=900.0, cost_usd=-3.0)
    """

    kwh: FloatArray
    carbon_g: FloatArray
    cost_usd: FloatArray

    def total(self) -> Totals:
        """Return the sums over all rows."""
        return Totals(
            kwh=float(self.kwh.sum()), carbon_g=float(self.carbon_g.sum()), cost_usd=float(self.cost_usd.sum())
        )

    def by(self, rows: IntArray, count: int) -> "Amounts":
        """Return the sums by group: `rows` holds the group (0 .. count - 1) of each row."""
        return Amounts(
            kwh=by(rows, self.kwh, count),
            carbon_g=by(rows, self.carbon_g, count),
            cost_usd=by(rows, self.cost_usd, count),
        )

    def plus(self, other: "Amounts") -> "Amounts":
        """Return these amounts plus `other`, row by row."""
        return Amounts(
            kwh=self.kwh + other.kwh,
            carbon_g=self.carbon_g + other.carbon_g,
            cost_usd=self.cost_usd + other.cost_usd,
        )

    def less(self, other: "Amounts") -> "Amounts":
        """Return these amounts minus `other`, row by row."""
        return Amounts(
            kwh=self.kwh - other.kwh,
            carbon_g=self.carbon_g - other.carbon_g,
            cost_usd=self.cost_usd - other.cost_usd,
        )


def by(rows: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Return the sums of `values` by group: `rows` holds the group (0 .. count - 1) of each value."""
    return np.bincount(rows, weights=values, minlength=count).astype(np.float64)


WATTS_PER_KW: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Spans of time: length of each, and integrals over it of carbon intensity x PUE and of price x PUE."""

    seconds: FloatArray
    carbon: FloatArray
    price: FloatArray

    @property
    def hours(self) -> FloatArray:
        """Return the lengths of the spans in hours."""
        return self.seconds / HOUR_S

    def times(self, watts: FloatArray) -> Amounts:
        """Return energy, carbon and cost of drawing `watts` throughout each span."""
        kw = watts / WATTS_PER_KW
        return Amounts(kwh=kw * self.hours, carbon_g=kw * self.carbon, cost_usd=kw * self.price)

    def taken(self, rows: IntArray) -> "Spans":
        """Return the spans in the rows `rows`."""
        return Spans(seconds=self.seconds[rows], carbon=self.carbon[rows], price=self.price[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time from `from_s` to `until_s` of a simulation whose 0 s is at the Unix time `start_ts`, on a grid."""

    grid: Grid
    start_ts: float
    from_s: float
    until_s: float

    def over(self, begin_s: FloatArray, end_s: FloatArray) -> Spans:
        """Return the parts of the given spans that are within the window.

        Raises
        ------
        BadInput
            If a series of the grid does not cover the spans.
        """
        begins, ends = self._within(begin_s, end_s)
        return Spans(
            seconds=ends - begins,
            carbon=self._integral(self.grid.carbon, begins, ends),
            price=self._integral(self.grid.price, begins, ends),
        )

    def whole(self) -> Spans:
        """Return the whole window as one span."""
        return self.over(np.array([self.from_s]), np.array([self.until_s]))

    def by_hour(self, begin_s: FloatArray, end_s: FloatArray, watts: FloatArray) -> tuple[FloatArray, Amounts]:
        """Return the hours that the window touches, and in each hour the sum of all spans' energy, carbon and cost."""
        first = float(np.floor((self.start_ts + self.from_s) / HOUR_S))
        count = max(int(np.ceil((self.start_ts + self.until_s) / HOUR_S - first)), 1)
        shift_s = self.start_ts - first * HOUR_S
        begins, ends = ((each + shift_s) / HOUR_S for each in self._within(begin_s, end_s))
        kwh = _spread(begins, ends, watts / WATTS_PER_KW, count)
        hour_ts = (first + np.arange(count, dtype=np.float64)) * HOUR_S
        levels = (self._level(series, hour_ts) for series in (self.grid.carbon, self.grid.price))
        carbon_g, cost_usd = (kwh * level for level in levels)
        return hour_ts, Amounts(kwh=kwh, carbon_g=carbon_g, cost_usd=cost_usd)

    def known(self, amounts: Amounts) -> Amounts:
        """Return the amounts with carbon (or cost) NaN in every row if the grid lacks that series."""
        unknown = np.full(len(amounts.kwh), np.nan)
        return Amounts(
            kwh=amounts.kwh,
            carbon_g=unknown if self.grid.carbon is None else amounts.carbon_g,
            cost_usd=unknown if self.grid.price is None else amounts.cost_usd,
        )

    def _within(self, begin_s: FloatArray, end_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        begins = np.clip(begin_s, self.from_s, self.until_s)
        return begins, np.maximum(np.clip(end_s, self.from_s, self.until_s), begins)

    def _integral(self, series: HourlySeries | None, begin_s: FloatArray, end_s: FloatArray) -> FloatArray:
        if series is None:
            return np.full(len(begin_s), np.nan)
        return self.grid.pue * series.integral(self.start_ts + begin_s, self.start_ts + end_s)

    def _level(self, series: HourlySeries | None, hour_ts: FloatArray) -> FloatArray:
        return np.full(len(hour_ts), np.nan) if series is None else self.grid.pue * series.at(hour_ts)


def united(outages: Outages) -> Outages:
    """Return outages that cover the same time without overlaps on a machine.

    >>> twice = Outages(machine=np.array([0, 0]), down_s=np.array([5.0, 8.0]), up_s=np.array([20.0, 30.0]))
    >>> united(twice).down_s.tolist(), united(twice).up_s.tolist()
    ([5.0, 20.0], [20.0, 30.0])
    """
    down_s = outages.down_s.copy()
    away_until: dict[int, float] = {}
    for row, (machine, up_s) in enumerate(zip(outages.machine.tolist(), outages.up_s.tolist(), strict=True)):
        down_s[row] = max(down_s[row], away_until.get(machine, 0.0))
        away_until[machine] = max(up_s, away_until.get(machine, 0.0))
    stays = down_s < outages.up_s
    order = np.argsort(down_s[stays], kind="stable")
    return Outages(machine=outages.machine[stays][order], down_s=down_s[stays][order], up_s=outages.up_s[stays][order])


def _spread(begins: FloatArray, ends: FloatArray, kw: FloatArray, count: int) -> FloatArray:
    """Return the kWh of all spans in each hour 0 .. count - 1; spans are in hours, `kw` is the power of each."""
    level, partly = np.zeros(count + 2), np.zeros(count + 2)
    for at, signed in ((begins, kw), (ends, -kw)):
        hour = np.minimum(at.astype(np.int64), count)
        partly += np.bincount(hour, weights=signed * (hour + 1 - at), minlength=count + 2)
        level += np.bincount(hour + 1, weights=signed, minlength=count + 2)
    return np.asarray((np.cumsum(level) + partly)[:count], dtype=np.float64)

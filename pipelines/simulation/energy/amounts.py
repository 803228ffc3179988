"""Energy, emissions and money as columns of one length, and their sums.

What they are amounts of is `accounting`'s matter. Called by it, by `window` and by `pipelines.studies.energy`.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums of `Amounts`."""

    kwh: float
    carbon_g: float
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Energy of the machines, and what the site emitted and paid for it (PUE included); NaN where the grid tells none.

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
        """Return the sums by the row (0 .. count - 1) that each amount belongs to."""
        return Amounts(
            kwh=by(rows, self.kwh, count),
            carbon_g=by(rows, self.carbon_g, count),
            cost_usd=by(rows, self.cost_usd, count),
        )

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sums row by row."""
        return Amounts(
            kwh=self.kwh + other.kwh,
            carbon_g=self.carbon_g + other.carbon_g,
            cost_usd=self.cost_usd + other.cost_usd,
        )

    def less(self, other: "Amounts") -> "Amounts":
        """Return the differences row by row."""
        return Amounts(
            kwh=self.kwh - other.kwh,
            carbon_g=self.carbon_g - other.carbon_g,
            cost_usd=self.cost_usd - other.cost_usd,
        )


def by(rows: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Return the sums of values by the row (0 .. count - 1) that each belongs to."""
    return np.bincount(rows, weights=values, minlength=count).astype(np.float64)

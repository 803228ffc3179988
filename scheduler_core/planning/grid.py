"""The grid a site hangs on: carbon intensity and price by the hour, and the site's power usage effectiveness.

Reading files is `pipelines.simulation.energy.grid_files`' matter. Called by `accounting`, `slack` and whoever asks a
provider.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S, HourlySeries

CARBON_UNIT: Final = "g/kWh"
PRICE_UNIT: Final = "USD/kWh"
MOST_PUE: Final = 10.0
"""More than any site's: what lies beyond is a mistake."""


class GridProvider(Protocol):
    """Whatever tells carbon intensity and price at a moment (Unix time); prices may be negative."""

    def carbon_g_per_kwh(self, ts: float) -> float:
        """Return grams of CO2 equivalent per kWh."""
        ...

    def price_usd_per_kwh(self, ts: float) -> float:
        """Return USD per kWh."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One zone's series and the site there; a series is None where nobody tells it.

    `pue` is the site's energy over that of its machines: emissions and cost are the whole site's.

    Raises
    ------
    BadInput
        If a series is of another unit, or the PUE is not from 1 to 10.

    Examples
    --------
    >>> import numpy as np
    >>> noon = HourlySeries(start_s=0.0, values=np.array([120.0]), unit="g/kWh")
    >>> Grid(zone="DE", carbon=noon).carbon_g_per_kwh(60.0)
    120.0
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

    def carbon_g_per_kwh(self, ts: float) -> float:
        """Return grams of CO2 equivalent per kWh.

        Raises
        ------
        BadInput
            If nobody tells it, or not for that moment.
        """
        return _told(self.carbon, self.zone, "carbon intensity").at(ts)

    def price_usd_per_kwh(self, ts: float) -> float:
        """Return USD per kWh, which may be negative.

        Raises
        ------
        BadInput
            If nobody tells it, or not for that moment.
        """
        return _told(self.price, self.zone, "price").at(ts)


def _told(series: HourlySeries | None, zone: str, what: str) -> HourlySeries:
    if series is None:
        raise BadInput(f"grid {zone}: found no {what}, expected an hourly series of it")
    return series


def sampled(provider: GridProvider, zone: str, *, start_s: float, hours: int, pue: float = 1.0) -> Grid:
    """Return what a provider tells at the begin of each of so many hours, as a grid to account on.

    Raises
    ------
    BadInput
        If the begin is no whole hour, there is no hour, or the provider tells what is no finite number.
    """
    moments = [start_s + hour * HOUR_S for hour in range(hours)]
    carbon = np.array([provider.carbon_g_per_kwh(each) for each in moments], dtype=np.float64)
    price = np.array([provider.price_usd_per_kwh(each) for each in moments], dtype=np.float64)
    return Grid(
        zone=zone,
        carbon=HourlySeries(start_s=start_s, values=carbon, unit=CARBON_UNIT),
        price=HourlySeries(start_s=start_s, values=price, unit=PRICE_UNIT),
        pue=pue,
    )

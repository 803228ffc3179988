"""The electricity grid of a site: hourly carbon intensity and price, and the site's power usage effectiveness (PUE)."""

from dataclasses import dataclass
from typing import Final

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HourlySeries

__all__ = ["CARBON_UNIT", "MOST_PUE", "PRICE_UNIT", "Grid"]

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

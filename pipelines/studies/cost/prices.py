"""The prices the experiment on costs is run at: hourly ones of zones, and a flat one to hold them against.

Reading files is `pipelines.simulation.energy.grid_files`'. Called by `pipelines.studies.cost.experiment`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import zone_files
from scheduler_core.planning.hourly import HourlySeries

FLAT: Final = "flat"


def prices(folder: Path, zones: Sequence[str]) -> Mapping[str, HourlySeries]:
    """Return each zone's price by the hour, in the order given, and a flat one at the first one's mean; all go round.

    Raises
    ------
    BadUsage
        If a zone is unknown, or has no file of prices.
    """
    found: dict[str, HourlySeries] = {}
    for zone in zones:
        series = zone_files(folder / "grid", zone).price
        if series is None:
            raise BadUsage(f"zone {zone}: found no file of prices in {folder}, expected price_YEAR.csv")
        found[zone] = series.going_round()
    home = found[zones[0]]
    flat = HourlySeries(start_s=home.start_s, values=np.full(len(home), home.values.mean()), unit=home.unit, wrap=True)
    return {**found, FLAT: flat}

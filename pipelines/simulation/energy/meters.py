"""Power of machines and the grids of zones, for the report."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.simulation.energy.grid_files import zone_files
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.planning.hourly import Grid
from scheduler_core.planning.power import PowerTable

__all__ = ["Meters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """Power of machines and the grids of zones; `notes` state the assumptions of the energy results."""

    table: PowerTable
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, zone: str | None, power: Path | None, pue: float | None) -> "Meters":
        """Read the grid of a zone (None: the only one of the folder), and the power table, whose PUE `pue` replaces."""
        table, files = power_file(power), zone_files(folder, zone)
        grid = files.grid(table.pue if pue is None else pue)
        notes = (
            f"power: {table.source}; linear in use between idle and full; memory, disks and network are left out",
            f"PUE {grid.pue:g}: in carbon and cost, not in kWh",
            *files.notes,
        )
        return cls(table=table, grids=(grid,), notes=notes)

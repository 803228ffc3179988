"""One simulation on several grids: what it draws with machines always on, and with empty ones off, as flat figures.

Accounts are `scheduler_core.planning`'s. Called by `pipelines.studies.energy.savings_runs`, `savings_recorded` and
`shifting`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.energy.accounting import EnergyAccount, account
from pipelines.simulation.energy.energy_rows import G_PER_KG
from pipelines.simulation.energy.grid_files import zone_files
from pipelines.simulation.energy.idleness import Spared, spared, unused_gpu_kwh
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.energy.site import machine_notes, use_note
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.holding import Uses
from scheduler_core.cluster import Machine
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.power import PowerTable

Row = dict[str, object]

ZONES: Final = ("DE-LU", "US-CAL-CISO")
ON, OFF = "always on", "off when empty"
AMOUNTS: Final = ("energy_kwh", "carbon_kg", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """What machines draw, and the zones they are read in; `notes` are what a reader of figures has to know."""

    table: PowerTable
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, zones: Sequence[str | None] | None, power: Path | None, pue: float | None) -> "Meters":
        """Read zones of a folder (None: the only one there), `ZONES` by default, and the power of machines.

        Raises
        ------
        BadUsage
            If a file is absent or not of its format.
        """
        table = power_file(power)
        files = [zone_files(folder, zone) for zone in dict.fromkeys(zones or ZONES)]
        grids = tuple(each.grid(table.pue if pue is None else pue) for each in files)
        notes = [
            f"power: {table.source}; linear in use between idle and full; memory, disks and network are left out",
            f"PUE {grids[0].pue:g}: in carbon and cost, not in kWh",
            *(note for each in files for note in each.notes),
        ]
        return cls(table=table, grids=grids, notes=tuple(notes))

    def assumed(self, machines: Sequence[Machine]) -> list[str]:
        """Say what is assumed of use that nobody measured, and of machines that the table does not know."""
        return [use_note(self.table), *machine_notes(self.table, machines)]

    def priced(self) -> "Meters":
        """Return the same, if every zone tells carbon and price.

        Raises
        ------
        BadUsage
            If one lacks a series.
        """
        for grid in self.grids:
            if grid.carbon is None or grid.price is None:
                lacks = "carbon" if grid.carbon is None else "price"
                raise BadUsage(
                    f"zone {grid.zone} lacks {lacks}, expected files of carbon and price: add {lacks}_*.csv, or name "
                    "another zone with --zone"
                )
        return self

    def read(self, schedule: Schedule, uses: Uses, begin: Callable[[Grid], float]) -> "Iterator[Metered]":
        """Read a simulation in every zone; `begin` tells the Unix time of its 0 s there."""
        powers = self.table.nodes(schedule.machines)
        unused = unused_gpu_kwh(schedule, uses, powers, assumed=self.table.assumed)
        for grid in self.grids:
            start_ts = begin(grid)
            yield Metered(
                zone=grid.zone,
                on=account(schedule, uses, powers, grid, start_ts, assumed=self.table.assumed),
                off=spared(schedule, powers, grid, start_ts),
                unused_gpu_kwh=unused,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """One simulation in one zone: all that is drawn, and what of it switching off spares."""

    zone: str
    on: EnergyAccount
    off: Spared
    unused_gpu_kwh: float

    def amounts(self, machines: str) -> dict[str, float]:
        """Return energy, carbon and cost with machines `ON` or `OFF`."""
        whole, less = self.on.total(), self.off.machines.total()
        part = 1.0 if machines == OFF else 0.0
        return {
            "energy_kwh": whole.kwh - part * less.kwh,
            "carbon_kg": (whole.carbon_g - part * less.carbon_g) / G_PER_KG,
            "cost_usd": whole.cost_usd - part * less.cost_usd,
        }

    def parts(self) -> dict[str, float]:
        """Return kWh by what they are for: they add up to all that machines draw which are always on."""
        cpu_work, gpu_work, cpu_idle, gpu_idle = self.on.jobs_parts_kwh.sum(axis=0).tolist()
        empty = self.off.machines.total().kwh
        return {
            "work_kwh": cpu_work + gpu_work,
            "idle_of_used_kwh": cpu_idle + gpu_idle - self.unused_gpu_kwh,
            "idle_of_unused_gpus_kwh": self.unused_gpu_kwh,
            "idle_unheld_kwh": self.on.unallocated.total().kwh - empty,
            "idle_empty_kwh": empty,
        }


def first_s(grid: Grid) -> float:
    """Return the Unix time of a grid's first hour."""
    return next(each for each in (grid.carbon, grid.price) if each is not None).start_s


def hours_of(grid: Grid) -> int:
    """Return how many hours a grid tells."""
    return len(next(each for each in (grid.carbon, grid.price) if each is not None))

"""The site of a simulation: power of machines, grid and start time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipelines.errors import BadUsage
from pipelines.simulation.energy.account import EnergyAccount, account
from pipelines.simulation.energy.grid_files import zone_files
from pipelines.simulation.energy.power_file import PowerTable, power_file
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.job_metrics import Uses
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import Grid

__all__ = ["Meters", "Site", "machine_notes", "power_notes", "start_on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site of a simulation: power of machines, grid, and start time.

    `start_ts` is the Unix time of the simulation's 0 s on the grid. `notes` state assumptions of the energy results.
    """

    table: PowerTable
    grid: Grid | None = None
    start_ts: float = 0.0
    notes: tuple[str, ...] = ()

    def account(self, schedule: Schedule, uses: Uses, *, from_s: float) -> EnergyAccount:
        """Return the energy account of a schedule at this site."""
        return account(
            schedule,
            uses,
            self.table.nodes(schedule.machines),
            self.grid,
            self.start_ts,
            assumed=self.table.unknown_use,
            from_s=from_s,
        )


def start_on(grid: Grid, chosen: datetime | None, first_ts: float | None) -> tuple[float, str]:
    """Return the Unix time of a simulation's 0 s on the grid, and a note on how it was chosen.

    The start is the `chosen` moment (UTC) if given. Otherwise it is, for recorded arrivals, month, day and time of the
    first submission in the grid's year (days of the week are not matched), and for drawn arrivals the grid's first
    hour. A simulation that runs beyond the last hour of the grid continues at its first hour.
    """
    series = next(each for each in (grid.carbon, grid.price) if each is not None)
    begin, last = (datetime.fromtimestamp(ts, UTC) for ts in (series.start_s, series.until_s))
    if chosen is not None:
        candidates, how = [chosen], "as given"
    elif first_ts is not None:
        first = datetime.fromtimestamp(first_ts, UTC)
        candidates = [_in_year(first, year) for year in (begin.year, begin.year + 1)]
        how = f"month, day and time of the first submission, {first:%Y-%m-%d %H:%M} UTC"
    else:
        candidates, how = [begin], "the grid's first hour"
    for moment in candidates:
        if series.start_s <= moment.timestamp() < series.until_s:
            begins = f"0 s is {moment:%Y-%m-%d %H:%M} UTC on the grid ({how})"
            return moment.timestamp(), f"{begins}; from {last:%Y-%m-%d %H:%M} on its hours repeat from the first"
    raise BadUsage(
        f"zone {grid.zone}: found the start {candidates[0]:%Y-%m-%d %H:%M} UTC ({how}), expected one from "
        f"{begin:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}; name one with grid_start"
    )


def power_notes(table: PowerTable, machines: Sequence[Machine]) -> list[str]:
    """Return notes on the source of the power table, and on the assumptions about power and use."""
    return [
        f"power: {table.source}; linear in use between idle and full; memory, disks and network are left out; machines "
        "draw idle power until the run's end",
        f"assumed use if not measured: {table.unknown_use.gpu_frac:.0%} of the GPUs held and "
        f"{table.unknown_use.cpu_frac:.0%} of the CPUs",
        *machine_notes(table, machines),
    ]


def machine_notes(table: PowerTable, machines: Sequence[Machine]) -> list[str]:
    """Return notes on machines that the power table does not list, and on the power assumed for them."""
    notes = []
    guessed, with_gpus = table.guessed(machines), sum(each.gpus > 0 for each in machines)
    if guessed:
        notes.append(f"{guessed} of {with_gpus} machines have no GPU type of the table: taken as {table.defaults.gpu}")
    if unknown := sum(not each.cpu_cores for each in machines):
        notes.append(f"{unknown} machines have no known cores: taken as {table.defaults.packages} CPUs")
    return notes


def _in_year(moment: datetime, year: int) -> datetime:
    leap_day = (moment.month, moment.day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400))
    return moment.replace(year=year, month=3, day=1) if leap_day else moment.replace(year=year)


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

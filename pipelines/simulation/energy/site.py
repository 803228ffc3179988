"""A site as simulations see it: what its machines draw, the grid it hangs on, when, and who may be held for it.

Reading the files is `grid_files`' and `power_file`'s matter. Made by `taut simulate`; asked by
`pipelines.simulation.paired_runs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from pipelines.errors import BadUsage
from pipelines.simulation.energy.accounting import EnergyAccount, account
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import Outages, Workload
from pipelines.simulation.measures.holding import Uses
from scheduler_core.cluster import Machine
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.power import PowerTable
from scheduler_core.planning.release import CLAIRVOYANT, Slack, released_s
from scheduler_core.types import FloatArray

ShiftBy = Literal["carbon", "price"]

AT_ONCE: Final = "none"
BY_FORECAST: Final = "forecast"
FORECAST: Final = "yesterday"
"""The forecast that jobs are held by: persistence sees no better hour."""

CURE: Final = "give files of a whole year with --grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Jobs are held within their slack until an hour of less carbon, or of a lower price."""

    slack: Slack
    by: ShiftBy

    def note(self) -> str:
        """Say who is held, how long, and by what."""
        long = f"{self.slack.longest_s / HOUR_S:g} h" if self.slack.longest_s is not None else ""
        long = long or f"{self.slack.run_frac:g} of the predicted run time (unknown: not at all)"
        return (
            f"slack {long} by {self.by}: shift={BY_FORECAST} holds a job until the begin of the hour within it from "
            "which its run is expected to meet the lowest mean, by the same hours of the day before; "
            f"shift={CLAIRVOYANT} by what came (a bound, not a policy); decided once, at submission; time held is time "
            "waited"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and when a simulation takes place.

    `start_ts` is the Unix time of the simulation's 0 s on the grid; `notes` are what a reader of figures has to know.
    """

    table: PowerTable
    grid: Grid | None = None
    start_ts: float = 0.0
    holding: Holding | None = None
    notes: tuple[str, ...] = ()

    @property
    def shifts(self) -> tuple[str, ...]:
        """Return the ways in which jobs are let into the queue, at once first."""
        return (AT_ONCE,) if self.holding is None else (AT_ONCE, BY_FORECAST, CLAIRVOYANT)

    def released_s(self, workload: Workload, shift: str) -> FloatArray:
        """Return when jobs (n) are let into the queue under a shift other than `AT_ONCE`.

        The forecast goes by predicted run times, the clairvoyant by those to come.
        """
        if self.holding is None or shift == AT_ONCE:
            return workload.arrive_s
        known = shift == CLAIRVOYANT
        return released_s(
            workload.arrive_s,
            self.holding.slack.of(workload.predicted_s),
            workload.granted_run_s if known else workload.predicted_s,
            self._series(self.holding.by),
            self.start_ts,
            CLAIRVOYANT if known else FORECAST,
        )

    def account(self, schedule: Schedule, uses: Uses, *, from_s: float, outages: Outages) -> EnergyAccount:
        """Return what a run came to here."""
        return account(
            schedule,
            uses,
            self.table.nodes(schedule.machines),
            self.grid,
            self.start_ts,
            assumed=self.table.assumed,
            from_s=from_s,
            outages=outages,
        )

    def _series(self, by: ShiftBy) -> HourlySeries:
        series = None if self.grid is None else (self.grid.carbon if by == "carbon" else self.grid.price)
        if series is None:
            raise BadUsage(f"--shift-by {by}: found no series of {by} in the grid, expected one; name the other")
        return series


def start_on(grid: Grid, told: datetime | None, first_ts: float | None, *, cure: str = CURE) -> tuple[float, str]:
    """Return the Unix time of a simulation's 0 s on the grid, and how it was found.

    As told (of UTC); else, for recorded arrivals, the month, day and time of the first submission in
    the grid's year; else the grid's first hour. Days of the week are not matched (ours). What runs on beyond the last
    hour of the grid goes on at its first.

    `cure` is what the error tells to do.

    Raises
    ------
    BadUsage
        If the grid does not tell that moment.
    """
    series = next(each for each in (grid.carbon, grid.price) if each is not None)
    begin = datetime.fromtimestamp(series.start_s, UTC)
    if told is not None:
        candidates, how = [told], "as told"
    elif first_ts is not None:
        first = datetime.fromtimestamp(first_ts, UTC)
        candidates = [_in_year(first, year) for year in (begin.year, begin.year + 1)]
        how = f"month, day and time of the first submission, {first:%Y-%m-%d %H:%M} UTC"
    else:
        candidates, how = [begin], "the grid's first hour"
    for moment in candidates:
        if series.start_s <= moment.timestamp() < series.until_s:
            return moment.timestamp(), f"0 s is {moment:%Y-%m-%d %H:%M} UTC on the grid ({how})"
    last = datetime.fromtimestamp(series.until_s, UTC)
    raise BadUsage(
        f"zone {grid.zone}: found the begin {candidates[0]:%Y-%m-%d %H:%M} UTC ({how}), expected one from "
        f"{begin:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}; {cure}"
    )


def power_notes(table: PowerTable, machines: Sequence[Machine]) -> list[str]:
    """Say where watts come from, and what is assumed."""
    return [
        f"power: {table.source}; linear in use between idle and full; memory, disks and network are left out; machines "
        "draw idle power until the run's end",
        use_note(table),
        *machine_notes(table, machines),
    ]


def use_note(table: PowerTable) -> str:
    """Say what runs of unknown use are taken to use."""
    assumed = table.assumed
    return f"use that nobody measured: {assumed.gpu_frac:.0%} of the GPUs held and {assumed.cpu_frac:.0%} of the CPUs"


def machine_notes(table: PowerTable, machines: Sequence[Machine]) -> list[str]:
    """Say of how many machines the table does not know what they are, and what they are taken as."""
    notes = []
    guessed, with_gpus = table.guessed(machines), sum(each.gpus > 0 for each in machines)
    if guessed:
        notes.append(f"{guessed} of {with_gpus} machines name no GPU type of the table: taken as {table.default_gpu}")
    if untold := sum(not each.cpu_cores for each in machines):
        notes.append(f"{untold} machines tell no cores: taken as {table.packages} CPUs")
    return notes


def _in_year(moment: datetime, year: int) -> datetime:
    leap_day = (moment.month, moment.day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400))
    return moment.replace(year=year, month=3, day=1) if leap_day else moment.replace(year=year)

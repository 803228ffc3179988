"""Compute the energy of one schedule on several grids, with machines always on and with empty machines off.

The energy account of a simulation is in `accounting`. Called by the report and `pipelines.studies.energy`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.energy.accounting import EnergyAccount, Fleet, account, draw
from pipelines.simulation.energy.grid_files import of_one_year, zone_files
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.energy.site import machine_notes, use_note
from pipelines.simulation.energy.tables import G_PER_KG
from pipelines.simulation.energy.window import WATTS_PER_KW, Amounts, Window
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.job_metrics import Uses, held_s
from scheduler_core.cluster import Machine
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.planning.power import Assumed, NodePower, PowerTable
from scheduler_core.types import FloatArray, IntArray

__all__ = ["AMOUNTS", "OFF", "OFF_AFTER_S", "ON", "Metered", "Meters", "Row", "first_s", "hours_of"]

OFF_AFTER_S: Final = 600.0
"""Time after which an empty machine is switched off (our rule; it needs no forecast of arrivals)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptySpans:
    """Spans of time in which nothing ran on a machine, sorted by machine (an index) and start; none has length 0."""

    machine: IntArray
    begin_s: FloatArray
    end_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """Energy, carbon and cost saved by switching off empty machines, by machine and by hour of the grid."""

    machines: Amounts
    hour_ts: FloatArray
    hours: Amounts


def empty_spans(schedule: Schedule) -> EmptySpans:
    """Return the spans in which a machine was empty, from 0 s to the end of the schedule."""
    count = len(schedule.machines)
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    every, none = np.arange(count), np.zeros(count, dtype=np.int64)
    begins, ends = schedule.start_s[run], np.minimum(schedule.end_run_s[run], schedule.end_s)
    where = np.concatenate([machine, machine, every, every])
    when = np.concatenate([begins, ends, np.zeros(count), np.full(count, schedule.end_s)])
    change = np.concatenate([np.ones_like(machine), -np.ones_like(machine), none, none])
    # Simultaneous ends and starts may be sorted in any order, because spans of length 0 are dropped.
    order = np.lexsort((when, where))
    where, when, held = where[order], when[order], np.cumsum(change[order])
    empty = (held[:-1] == 0) & (where[1:] == where[:-1]) & (when[1:] > when[:-1])
    return EmptySpans(machine=where[:-1][empty], begin_s=when[:-1][empty], end_s=when[1:][empty])


def spared(
    schedule: Schedule,
    powers: Sequence[NodePower],
    grid: Grid | None,
    start_ts: float,
    *,
    off_after_s: float = OFF_AFTER_S,
) -> Spared:
    """Return the idle energy saved if machines are switched off after `off_after_s` of being empty, until the next run.

    Switching on is assumed to cost neither time nor energy, so the result is an upper bound. Outages are ignored.

    Raises
    ------
    BadInput
        If `powers` has not one entry per machine, `off_after_s` is below 0, or a series is shorter than the schedule.
    """
    if not off_after_s >= 0.0:
        raise BadInput(f"switching off: found a wait of {off_after_s} s, expected 0 or more")
    fleet = Fleet.of(schedule.machines, powers)
    spans = empty_spans(schedule)
    begin_s = np.minimum(spans.begin_s + off_after_s, spans.end_s)
    window = Window(grid=grid or Grid(zone="none"), start_ts=start_ts, from_s=0.0, until_s=schedule.end_s)
    watts = fleet.idle_w[spans.machine]
    hour_ts, hours = window.by_hour(begin_s, spans.end_s, watts)
    off = window.over(begin_s, spans.end_s).times(watts)
    return Spared(machines=off.by(spans.machine, len(fleet.gpus)), hour_ts=hour_ts, hours=hours)


def unused_gpu_kwh(schedule: Schedule, uses: Uses, powers: Sequence[NodePower], *, assumed: Assumed) -> float:
    """Return the idle energy of GPUs that runs held but did not use, in kWh: idle watts x (held - used) x hours.

    It is part of the idle energy charged to jobs. Use is the measured use of the runs, or `assumed` if unknown.
    """
    fleet = Fleet.of(schedule.machines, powers)
    drawn = draw(schedule, uses, fleet, assumed)
    hours = held_s(schedule, 0.0, schedule.end_s)[drawn.run] / HOUR_S
    idle, work = fleet.gpu_idle_w[drawn.machine], (fleet.gpu_full_w - fleet.gpu_idle_w)[drawn.machine]
    used = np.divide(drawn.watts[:, 1], work, out=np.zeros_like(work), where=work > 0.0)
    return float(((drawn.watts[:, 3] - used * idle) / WATTS_PER_KW * hours).sum())


Row = dict[str, object]

ZONES: Final = ("DE-LU", "US-CAL-CISO")
ON, OFF = "always on", "off when empty"
AMOUNTS: Final = ("energy_kwh", "carbon_kg", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """Power of machines and the grids of several zones; `notes` state the assumptions of the energy results."""

    table: PowerTable
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        folder: Path,
        zones: Sequence[str | None] | None,
        power: Path | None,
        pue: float | None,
        year: int | None = None,
    ) -> "Meters":
        """Read the grids of the given zones in a folder, and the power table, whose PUE `pue` replaces.

        If `zones` is None, the zones are `ZONES`. A zone that is None stands for the only zone of the folder. If `year`
        is given, only its hours are used.

        Raises
        ------
        BadUsage
            If a file is missing, has an invalid format or lacks hours of the year, or zones begin in different years.
        """
        table = power_file(power)
        files = of_one_year([zone_files(folder, zone) for zone in dict.fromkeys(zones or ZONES)], year)
        grids = tuple(each.grid(table.pue if pue is None else pue) for each in files)
        notes = [
            f"power: {table.source}; linear in use between idle and full; memory, disks and network are left out",
            f"PUE {grids[0].pue:g}: in carbon and cost, not in kWh",
            *(note for each in files for note in each.notes),
        ]
        return cls(table=table, grids=grids, notes=tuple(notes))

    def assumed(self, machines: Sequence[Machine]) -> list[str]:
        """Return notes on the assumed use of unmeasured runs, and on machines that the table does not list."""
        return [use_note(self.table), *machine_notes(self.table, machines)]

    def priced(self) -> "Meters":
        """Check that every zone has carbon intensity and price, and return this object.

        Raises
        ------
        BadUsage
            If a zone lacks one of the two series.
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
        """Yield the energy of a schedule in every zone; `begin` maps a grid to the Unix time of the schedule's 0 s."""
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
    """One schedule in one zone: its energy account, and the amounts saved by switching off empty machines."""

    zone: str
    on: EnergyAccount
    off: Spared
    unused_gpu_kwh: float

    def amounts(self, machines: str) -> dict[str, float]:
        """Return energy, carbon and cost if machines are always on (`ON`) or switched off when empty (`OFF`)."""
        whole, less = self.on.total(), self.off.machines.total()
        part = 1.0 if machines == OFF else 0.0
        return {
            "energy_kwh": whole.kwh - part * less.kwh,
            "carbon_kg": (whole.carbon_g - part * less.carbon_g) / G_PER_KG,
            "cost_usd": whole.cost_usd - part * less.cost_usd,
        }

    def parts(self) -> dict[str, float]:
        """Return kWh by cause; they add up to the energy of machines that are always on."""
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
    """Return the number of hours of a grid."""
    return len(next(each for each in (grid.carbon, grid.price) if each is not None))

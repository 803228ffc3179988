"""The energy account of a schedule: kWh, CO2 and cost by job, machine and hour, by exact integrals of power."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages
from pipelines.simulation.measures.job_metrics import Uses, drawn_units, instance_units
from scheduler_core.cluster import UNITS, Machine
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["WATTS_PER_KW", "Amounts", "EnergyAccount", "account"]

WATTS_PER_KW: Final = 1000.0


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

    def plus(self, other: "Amounts", times: float = 1.0) -> "Amounts":
        """Return these amounts plus `times` of `other`, row by row."""
        return Amounts(
            kwh=self.kwh + times * other.kwh,
            carbon_g=self.carbon_g + times * other.carbon_g,
            cost_usd=self.cost_usd + times * other.cost_usd,
        )


def by(rows: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Return the sums of `values` by group: `rows` holds the group (0 .. count - 1) of each value."""
    return np.bincount(rows, weights=values, minlength=count).astype(np.float64)


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
        """Return the parts of the given spans that are within the window."""
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


PARTS = ("cpu_busy", "gpu_busy", "cpu_idle", "gpu_idle")
"""Parts of the power that a run draws, in column order; the idle parts are its share of its machines' idle power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Power of runs on machines: one entry (e) per run and machine, as in `Schedule.hosts`.

    `run` and `machine` are indices, `watts` (e, 4) is power by part in the order of `PARTS`. `known` (k,) is whether
    the CPU and GPU use of each run was measured.
    """

    run: IntArray
    machine: IntArray
    watts: FloatArray
    known: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The machines (m) of a cluster as columns: capacity, idle power and full power."""

    cores: FloatArray
    gpus: FloatArray
    cpu_idle_w: FloatArray
    cpu_full_w: FloatArray
    gpu_idle_w: FloatArray
    gpu_full_w: FloatArray

    @classmethod
    def of(cls, machines: Sequence[Machine], powers: Sequence[NodePower]) -> "Fleet":
        """Convert machines and their idle and full power to columns."""
        if len(powers) != len(machines):
            raise BadInput(f"power: found figures of {len(powers)} machines, expected {len(machines)}, one per machine")
        return cls(
            cores=np.array([each.cpu_cores for each in machines], dtype=np.float64),
            gpus=np.array([each.gpus for each in machines], dtype=np.float64),
            cpu_idle_w=np.array([each.cpu_idle_w for each in powers], dtype=np.float64),
            cpu_full_w=np.array([each.cpu_full_w for each in powers], dtype=np.float64),
            gpu_idle_w=np.array([each.gpu_idle_w for each in powers], dtype=np.float64),
            gpu_full_w=np.array([each.gpu_full_w for each in powers], dtype=np.float64),
        )

    @property
    def idle_w(self) -> FloatArray:
        """Return the idle power of each machine in watts."""
        return np.asarray(self.cpu_idle_w + self.gpus * self.gpu_idle_w, dtype=np.float64)


def draw(schedule: Schedule, uses: Uses, fleet: Fleet, assumed: Assumed) -> Draw:
    """Return the power of each run on each of its machines: its power above idle, and its share of the idle power.

    A GPU draws idle + (full - idle) x use watts, and the CPUs of a machine too, with the mean use of all its cores: we
    assume that power is linear in use. A run is charged the idle power of its GPUs, and of the CPUs in proportion to
    its cores, or to its GPUs if no job requests cores (our rule). Idle power of free capacity is charged to no run.
    """
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    count = schedule.host_counts
    gpus, gpus_used, gpu_known = _held(schedule, uses, 2, assumed.gpu_frac)
    cores, cores_used, cpu_known = _held(schedule, uses, 0, assumed.cpu_frac)
    if schedule.workload.request_units[:, 0].any():
        part, busy = _over(cores[run], fleet.cores[machine]), _over(cores_used[run], fleet.cores[machine])
    else:
        part = _over(gpus[run], fleet.gpus[machine])
        busy = part * assumed.cpu_frac
        cpu_known = np.zeros_like(cpu_known)
    watts = np.column_stack(
        [
            count * busy * (fleet.cpu_full_w - fleet.cpu_idle_w)[machine],
            count * gpus_used[run] * (fleet.gpu_full_w - fleet.gpu_idle_w)[machine],
            count * part * fleet.cpu_idle_w[machine],
            count * gpus[run] * fleet.gpu_idle_w[machine],
        ]
    )
    return Draw(run=run, machine=machine, watts=watts, known=cpu_known & gpu_known)


def _held(
    schedule: Schedule, uses: Uses, resource: int, assumed_frac: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the amounts that one instance of each run (k,) holds and uses, and whether the use was measured.

    A run that holds none of the resource counts as measured.
    """
    held = instance_units(schedule, resource) / UNITS[resource]
    instances = schedule.workload.instances[schedule.job]
    used = drawn_units(schedule, uses, resource) / instances / UNITS[resource]
    unknown = np.isnan(used)
    known: BoolArray = ~unknown | (held == 0.0)
    return held, np.where(unknown, assumed_frac * held, used), known


def _over(amounts: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(amounts, whole, out=np.zeros_like(amounts), where=whole > 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyAccount:
    """Energy, carbon and cost of a simulation from `from_s` to its end.

    Attributes
    ----------
    start_ts, from_s, until_s
        Unix time of the simulation's 0 s, and start and end of the account in seconds of the simulation.
    pue
        Power usage effectiveness, by which `carbon_g` and `cost_usd` are multiplied. kWh are of the machines alone.
    jobs
        For each job (n): its energy above idle plus its share of the idle energy of its machines.
    jobs_parts_kwh
        The kWh of `jobs` divided into `PARTS`; shape (n, 4).
    held_s
        Time for which each job (n,) held machines, summed over its runs.
    known
        Whether the CPU and GPU use of each job (n,) was measured; if not, it is assumed.
    machines
        For each machine (m): its total energy, carbon and cost.
    unallocated
        For each machine (m): idle energy of the capacity that no job held.
    hour_ts, hours
        For each hour (h) of the grid: Unix time of its start, and the total of the cluster.
    """

    start_ts: float
    from_s: float
    until_s: float
    pue: float
    jobs: Amounts
    jobs_parts_kwh: FloatArray
    held_s: FloatArray
    known: BoolArray
    machines: Amounts
    unallocated: Amounts
    hour_ts: FloatArray
    hours: Amounts

    def total(self) -> Totals:
        """Return energy, carbon and cost of the whole cluster."""
        return self.machines.total()


def account(
    schedule: Schedule,
    uses: Uses,
    powers: Sequence[NodePower],
    grid: Grid | None,
    start_ts: float,
    *,
    assumed: Assumed,
    from_s: float = 0.0,
    outages: Outages = NO_OUTAGES,
) -> EnergyAccount:
    """Compute the energy account of a schedule by exact integration over time, without sampling.

    Machines always draw their idle power, except during outages. Carbon in g = kWh x PUE x intensity in g/kWh, and cost
    in USD = kWh x PUE x price in USD/kWh. Without a grid only kWh are computed. The totals of the cluster equal the sum
    over jobs plus the unallocated amounts, the sum over hours, and the sum over machines, up to rounding.

    `uses` are the average uses of one instance of each job; NaN is replaced by `assumed`. `powers` has one entry per
    machine. `start_ts` is the Unix time of the simulation's 0 s, `from_s` the start of the account in seconds of the
    simulation.

    References
    ----------
    codecarbon: energy by part, emissions = energy x intensity, PUE as a factor. The division of idle power is ours.
    """
    if not 0.0 <= from_s <= schedule.end_s:
        raise BadInput(f"account: found a start at {from_s} s, expected 0 to {schedule.end_s} s")
    window = Window(grid=grid or Grid(zone="none"), start_ts=start_ts, from_s=from_s, until_s=schedule.end_s)
    fleet = Fleet.of(schedule.machines, powers)
    drawn = draw(schedule, uses, fleet, assumed)
    runs, jobs, machines = len(schedule.job), len(schedule.workload), len(schedule.machines)
    over_runs = window.over(schedule.start_s, schedule.end_run_s)
    over_entries = over_runs.taken(drawn.run)
    parts_w = np.column_stack([by(drawn.run, part, runs) for part in drawn.watts.T])
    parts_kwh = [by(schedule.job, part / WATTS_PER_KW * over_runs.hours, jobs) for part in parts_w.T]
    away = united(outages)
    idle = _idle(window, fleet.idle_w, away)
    work = over_entries.times(drawn.watts[:, :2].sum(axis=1)).by(drawn.machine, machines)
    held = over_entries.times(drawn.watts[:, 2:].sum(axis=1)).by(drawn.machine, machines)
    hour_ts, hours = window.by_hour(
        np.concatenate([[window.from_s], away.down_s, schedule.start_s]),
        np.concatenate([[window.until_s], away.up_s, schedule.end_run_s]),
        np.concatenate([[float(fleet.idle_w.sum())], -fleet.idle_w[away.machine], parts_w[:, :2].sum(axis=1)]),
    )
    known = np.ones(jobs, dtype=np.bool_)
    known[schedule.job[~drawn.known]] = False
    return EnergyAccount(
        start_ts=start_ts,
        from_s=from_s,
        until_s=schedule.end_s,
        pue=window.grid.pue,
        jobs=window.known(over_runs.times(parts_w.sum(axis=1)).by(schedule.job, jobs)),
        jobs_parts_kwh=np.column_stack(parts_kwh),
        held_s=by(schedule.job, over_runs.seconds, jobs),
        known=known,
        machines=idle.plus(work),
        unallocated=idle.plus(held, -1.0),
        hour_ts=hour_ts,
        hours=hours,
    )


def _idle(window: Window, idle_w: FloatArray, away: Outages) -> Amounts:
    """Return idle energy, carbon and cost of each machine (m) outside its outages."""
    always = window.whole().taken(np.zeros(len(idle_w), dtype=np.int64)).times(idle_w)
    spared = window.over(away.down_s, away.up_s).times(idle_w[away.machine])
    return always.plus(spared.by(away.machine, len(idle_w)), -1.0)

"""The energy account of a schedule: kWh, CO2 and cost by exact integrals of power, and the metrics of a result row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pipelines.simulation.energy.power_file import Assumed, NodePower
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.job_metrics import Uses, drawn_units, instance_units
from pipelines.simulation.measures.metrics import Metrics
from scheduler_core.cluster import UNITS, Machine
from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S, Grid
from scheduler_core.types import FloatArray

__all__ = ["G_PER_KG", "WATTS_PER_KW"]

WATTS_PER_KW: Final = 1000.0
G_PER_KG: Final = 1000.0


class Totals(NamedTuple):
    """Sums of energy, carbon and cost; see `Amounts`."""

    kwh: float
    carbon_g: float
    cost_usd: float


class Amounts(NamedTuple):
    """Columns of energy, carbon and cost.

    Energy is of the machines alone; carbon and cost include PUE, and are NaN if the grid lacks the series.
    """

    kwh: FloatArray
    carbon_g: FloatArray
    cost_usd: FloatArray

    def total(self) -> Totals:
        """Return the sums over all rows."""
        return Totals(*(float(column.sum()) for column in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyAccount:
    """Energy, carbon and cost of a simulation: of each job (n), and of the whole cluster.

    A job has its energy above idle, plus its share of the idle energy of its machines.
    """

    jobs: Amounts
    total: Totals


def account(
    schedule: Schedule,
    uses: Uses,
    powers: Sequence[NodePower],
    grid: Grid | None,
    start_ts: float,
    *,
    assumed: Assumed,
    from_s: float = 0.0,
) -> EnergyAccount:
    """Compute the energy account of a schedule by exact integration over time, without sampling.

    Machines always draw their idle power. Carbon in g = kWh x PUE x intensity in g/kWh, and cost
    in USD = kWh x PUE x price in USD/kWh. Without a grid only kWh are computed.

    `uses` are the average uses of one instance of each job; NaN is replaced by `assumed`. `powers` has one entry per
    machine. `start_ts` is the Unix time of the simulation's 0 s, `from_s` the start of the account in seconds of the
    simulation.

    References
    ----------
    codecarbon: emissions = energy x intensity, PUE as a factor. The division of idle power is ours.
    """
    if not 0.0 <= from_s <= schedule.end_s:
        raise BadInput(f"account: found a start at {from_s} s, expected 0 to {schedule.end_s} s")
    window = _Window(grid=grid or Grid(zone="none"), start_ts=start_ts, from_s=from_s, until_s=schedule.end_s)
    fleet = _fleet(schedule.machines, powers)
    busy_kw, held_kw = _drawn(schedule, uses, fleet, assumed)
    of_run = window.factors(schedule.start_s, schedule.end_run_s)
    idle_kw = (fleet.cpu_idle_w + fleet.gpus * fleet.gpu_idle_w) / WATTS_PER_KW
    [always] = window.factors(np.array([from_s]), np.array([schedule.end_s]))
    total = idle_kw.sum() * always + busy_kw @ of_run
    of_jobs = [
        np.bincount(schedule.job, weights=column * (busy_kw + held_kw), minlength=len(schedule.workload))
        for column in of_run.T
    ]
    return EnergyAccount(jobs=Amounts(*(np.stack(of_jobs) + window.unknown[:, None])), total=Totals(*total.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The time from `from_s` to `until_s` of a simulation whose 0 s is at the Unix time `start_ts`, on a grid."""

    grid: Grid
    start_ts: float
    from_s: float
    until_s: float

    @property
    def unknown(self) -> FloatArray:
        """Return NaN for carbon and for cost (3,) if the grid lacks the series, else 0."""
        return np.array([0.0, *(np.nan if each is None else 0.0 for each in (self.grid.carbon, self.grid.price))])

    def factors(self, begin_s: FloatArray, end_s: FloatArray) -> FloatArray:
        """Return kWh, carbon (g) and cost (USD) of drawing 1 kW during the parts of spans in the window (n, 3)."""
        begins = np.clip(begin_s, self.from_s, self.until_s)
        ends = np.maximum(np.clip(end_s, self.from_s, self.until_s), begins)
        integrals = [
            np.full(len(begins), np.nan)
            if series is None
            else self.grid.pue * series.integral(self.start_ts + begins, self.start_ts + ends)
            for series in (self.grid.carbon, self.grid.price)
        ]
        return np.column_stack([(ends - begins) / HOUR_S, *integrals])


class _Fleet(NamedTuple):
    """The machines (m) of a cluster as columns: capacity, idle power and full power."""

    cores: FloatArray
    gpus: FloatArray
    cpu_idle_w: FloatArray
    cpu_full_w: FloatArray
    gpu_idle_w: FloatArray
    gpu_full_w: FloatArray


def _fleet(machines: Sequence[Machine], powers: Sequence[NodePower]) -> _Fleet:
    if len(powers) != len(machines):
        raise BadInput(f"power: found figures of {len(powers)} machines, expected {len(machines)}, one per machine")
    rows = [
        (machine.cpu_cores, machine.gpus, watts.cpu_idle_w, watts.cpu_full_w, watts.gpu_idle_w, watts.gpu_full_w)
        for machine, watts in zip(machines, powers, strict=True)
    ]
    return _Fleet(*np.array(rows, dtype=np.float64).T)


def _drawn(schedule: Schedule, uses: Uses, fleet: _Fleet, assumed: Assumed) -> tuple[FloatArray, FloatArray]:
    """Return the kW of each run (k,) above the idle power of its machines, and its share of that idle power.

    A GPU draws idle + (full - idle) x use watts, and the CPUs of a machine too, with the mean use of all its cores: we
    assume that power is linear in use. A run is charged the idle power of its GPUs, and of the CPUs in proportion to
    its cores, or to its GPUs if no job requests cores (our rule). Idle power of free capacity is charged to no run.
    """
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    gpus, gpus_used = _held(schedule, uses, 2, assumed.gpu_frac)
    if schedule.workload.request_units[:, 0].any():
        cores, cores_used = _held(schedule, uses, 0, assumed.cpu_frac)
        part, busy = _over(cores[run], fleet.cores[machine]), _over(cores_used[run], fleet.cores[machine])
    else:
        part = _over(gpus[run], fleet.gpus[machine])
        busy = part * assumed.cpu_frac
    work_w = busy * (fleet.cpu_full_w - fleet.cpu_idle_w)[machine]
    work_w += gpus_used[run] * (fleet.gpu_full_w - fleet.gpu_idle_w)[machine]
    idle_w = part * fleet.cpu_idle_w[machine] + gpus[run] * fleet.gpu_idle_w[machine]
    busy_kw, held_kw = (
        np.bincount(run, weights=each * schedule.host_counts, minlength=len(schedule.job)) / WATTS_PER_KW
        for each in (work_w, idle_w)
    )
    return busy_kw, held_kw


def _held(schedule: Schedule, uses: Uses, resource: int, assumed_frac: float) -> tuple[FloatArray, FloatArray]:
    """Return the amounts that one instance of each run (k,) holds and uses."""
    held = instance_units(schedule, resource) / UNITS[resource]
    used = drawn_units(schedule, uses, resource) / schedule.workload.instances[schedule.job] / UNITS[resource]
    return held, np.where(np.isnan(used), assumed_frac * held, used)


def _over(amounts: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(amounts, whole, out=np.zeros_like(amounts), where=whole > 0.0)


SHOWN: Final = (
    "energy_kwh",
    "carbon_kg",
    "cost_usd",
    "energy_per_finished_saved_frac",
    "carbon_per_finished_saved_frac",
    "cost_per_finished_saved_frac",
)
"""Energy metrics that the summary table shows."""


def energy_figures(
    account: EnergyAccount, metrics: Metrics, base: EnergyAccount, base_metrics: Metrics, *, grid: bool
) -> dict[str, float]:
    """Return the energy metrics of one run: of the cluster, of its jobs, per finished job, and savings against `base`.

    `*_saved_frac` is (base - value) / |base|. `*_per_finished` divides by the number of jobs that completed or failed,
    which may differ between arms. kWh are of the machines alone; carbon and cost include PUE, and are left out without
    a `grid`. `*_jobs_*_per_kwh` is the mean carbon intensity or price of the energy of all jobs; it shows the
    effect of holding jobs separately from changes of their kWh. `*_job_mean_*` is the unweighted mean over jobs.
    """
    figures: dict[str, float] = {}
    jobs, of_jobs = account.jobs, account.jobs.total()
    finished, base_finished = (each.completed + each.failed for each in (metrics, base_metrics))
    columns = (("energy", "kwh", 1.0), ("carbon", "kg", G_PER_KG), ("cost", "usd", 1.0))
    totals = zip(columns, account.total, of_jobs, base.total, strict=True)
    for (name, unit, scale), cluster, part, base_cluster in list(totals)[: 3 if grid else 1]:
        whole, base_whole = cluster / scale, base_cluster / scale
        each, base_each = _ratio(whole, finished), _ratio(base_whole, base_finished)
        figures |= {
            f"{name}_{unit}": whole,
            f"{name}_jobs_{unit}": part / scale,
            f"{name}_unallocated_{unit}": whole - part / scale,
            f"{name}_{unit}_per_finished": each,
            f"{name}_saved_frac": _ratio(base_whole - whole, abs(base_whole)),
            f"{name}_per_finished_saved_frac": _ratio(base_each - each, abs(base_each)),
        }
    if grid:
        ran = jobs.kwh > 0.0
        for name, unit, total, amounts in (
            ("carbon", "g", of_jobs.carbon_g, jobs.carbon_g),
            ("cost", "usd", of_jobs.cost_usd, jobs.cost_usd),
        ):
            figures[f"{name}_jobs_{unit}_per_kwh"] = _ratio(total, of_jobs.kwh)
            each_job = amounts[ran] / jobs.kwh[ran]
            figures[f"{name}_job_mean_{unit}_per_kwh"] = float(each_job.mean()) if ran.any() else math.nan
    return figures


def _ratio(amount: float, over: float) -> float:
    return amount / over if over else math.nan

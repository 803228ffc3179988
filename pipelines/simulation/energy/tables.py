"""Convert energy accounts to metrics of a result row, and to tables by job, by hour and by kind of machine."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.energy.account import WATTS_PER_KW, Amounts, EnergyAccount
from pipelines.simulation.energy.site import Site
from pipelines.simulation.measures.metrics import Metrics
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.types import FloatArray

__all__ = ["G_PER_KG"]

G_PER_KG: Final = 1000.0

SHOWN: Final = (
    "energy_kwh",
    "carbon_kg",
    "cost_usd",
    "energy_per_finished_saved_frac",
    "carbon_per_finished_saved_frac",
    "cost_per_finished_saved_frac",
)
"""Energy metrics that the summary table shows."""

_WHOLE: Final = ("energy_kwh", "carbon_kg", "cost_usd")


def energy_figures(
    found: EnergyAccount, metrics: Metrics, base: EnergyAccount, base_metrics: Metrics, *, grid: bool
) -> dict[str, float]:
    """Return the energy metrics of one run: of the cluster, of its jobs, per finished job, and savings against `base`.

    `*_saved_frac` is (base - value) / |base|. `*_per_finished` divides by the number of jobs that completed or failed,
    which may differ between arms. kWh are of the machines alone; carbon and cost include PUE, and are left out without
    a `grid`. `*_jobs_*_per_kwh` is the mean carbon intensity or price of the energy of all jobs; it shows the
    effect of holding jobs separately from changes of their kWh. `*_job_mean_*` is the unweighted mean over jobs.
    """
    own, other = _of(found, metrics), _of(base, base_metrics)
    if not grid:
        own = {name: value for name, value in own.items() if name.startswith("energy")}
    figures = dict(own)
    if grid:
        figures |= _per_kwh(found.jobs)
    for name in _WHOLE:
        if name in own:
            what, each = name.rsplit("_", 1)[0], f"{name}_per_finished"
            figures[f"{what}_saved_frac"] = _saved(own[name], other[name])
            figures[f"{what}_per_finished_saved_frac"] = _saved(own[each], other[each])
    return figures


def _per_kwh(jobs: Amounts) -> dict[str, float]:
    total = jobs.total()
    return {
        "carbon_jobs_g_per_kwh": _ratio(total.carbon_g, total.kwh),
        "carbon_job_mean_g_per_kwh": _mean_per(jobs.carbon_g, jobs.kwh),
        "cost_jobs_usd_per_kwh": _ratio(total.cost_usd, total.kwh),
        "cost_job_mean_usd_per_kwh": _mean_per(jobs.cost_usd, jobs.kwh),
    }


def _of(found: EnergyAccount, metrics: Metrics) -> dict[str, float]:
    total, jobs, finished = found.total(), found.jobs.total(), metrics.completed + metrics.failed
    clusters = (total.kwh, total.carbon_g / G_PER_KG, total.cost_usd)
    shares = (jobs.kwh, jobs.carbon_g / G_PER_KG, jobs.cost_usd)
    figures: dict[str, float] = {}
    for name, cluster, of_jobs in zip(_WHOLE, clusters, shares, strict=True):
        what, unit = name.rsplit("_", 1)
        figures[name] = cluster
        figures[f"{what}_jobs_{unit}"] = of_jobs
        figures[f"{what}_unallocated_{unit}"] = cluster - of_jobs
        figures[f"{name}_per_finished"] = _ratio(cluster, finished)
    return figures


def _saved(value: float, base: float) -> float:
    return (base - value) / abs(base) if base else math.nan


def _mean_per(amounts: FloatArray, over: FloatArray) -> float:
    ran = over > 0.0
    return float((amounts[ran] / over[ran]).mean()) if ran.any() else math.nan


def _ratio(amount: float, over: float) -> float:
    return amount / over if over else math.nan


JOBS: Final = "energy_jobs.csv"
HOURS: Final = "energy_hours.csv"
MACHINES: Final = "energy_machines.csv"
FILES: Final = (JOBS, HOURS, MACHINES)

ALL: Final = "all"
_NO_ZONE: Final = ""


def energy_tables(
    found: EnergyAccount,
    site: Site,
    machines: Sequence[Machine],
    names: Mapping[str, Sequence[str | None]],
    at_s: FloatArray,
) -> dict[str, pl.DataFrame]:
    """Return the energy tables by file name; `names` are columns with one value per job, `at_s` submission times."""
    tables = {
        JOBS: job_table(found, site, names, at_s),
        HOURS: hour_table(found, site),
        MACHINES: machine_table(found, site, machines),
    }
    return {name: table.fill_nan(None) for name, table in tables.items()}


def job_table(
    found: EnergyAccount, site: Site, names: Mapping[str, Sequence[str | None]], at_s: FloatArray
) -> pl.DataFrame:
    """Return one row per job: energy in kWh, mean power in W and emissions in kg, in columns named as in codecarbon.

    `duration` is the time in seconds for which the job held machines. `cpu_energy` and `gpu_energy` include the job's
    share of idle energy, which is also in `idle_energy`; they exclude PUE. `emissions` and `cost_usd` include PUE.
    `use_known` is false if some of the job's use is assumed.
    """
    cpu = found.jobs_parts_kwh[:, 0] + found.jobs_parts_kwh[:, 2]
    gpu = found.jobs_parts_kwh[:, 1] + found.jobs_parts_kwh[:, 3]
    emissions = found.jobs.carbon_g / G_PER_KG
    own = [pl.Series(name, values, dtype=pl.String) for name, values in names.items()]
    count = len(found.held_s)
    return pl.DataFrame(
        [
            *own,
            pl.Series("timestamp", _moments(found.start_ts + at_s)),
            pl.Series("duration", found.held_s),
            pl.Series("emissions", emissions),
            pl.Series("emissions_rate", _per(emissions, found.held_s)),
            pl.Series("cpu_power", _per(cpu * WATTS_PER_KW * HOUR_S, found.held_s)),
            pl.Series("gpu_power", _per(gpu * WATTS_PER_KW * HOUR_S, found.held_s)),
            pl.Series("cpu_energy", cpu),
            pl.Series("gpu_energy", gpu),
            pl.Series("idle_energy", found.jobs_parts_kwh[:, 2:].sum(axis=1)),
            pl.Series("energy_consumed", found.jobs.kwh),
            pl.Series("cost_usd", found.jobs.cost_usd),
            pl.Series("zone", [site.grid.zone if site.grid else _NO_ZONE] * count, dtype=pl.String),
            pl.Series("pue", np.full(count, found.pue)),
            pl.Series("use_known", found.known),
        ]
    )


def hour_table(found: EnergyAccount, site: Site) -> pl.DataFrame:
    """Return one row per hour: the cluster's energy, carbon intensity and price, and the resulting carbon and cost."""
    carbon, price = (None, None) if site.grid is None else (site.grid.carbon, site.grid.price)
    return pl.DataFrame(
        {
            "timestamp": _moments(found.hour_ts),
            "energy_kwh": found.hours.kwh,
            "carbon_g_per_kwh": _level(carbon, found.hour_ts),
            "price_usd_per_kwh": _level(price, found.hour_ts),
            "carbon_kg": found.hours.carbon_g / G_PER_KG,
            "cost_usd": found.hours.cost_usd,
        }
    )


def machine_table(found: EnergyAccount, site: Site, machines: Sequence[Machine]) -> pl.DataFrame:
    """Return one row per kind of machine, sorted by name, and a last row with the totals."""
    each = pl.DataFrame(
        {
            "kind": [node.name for node in site.table.nodes(machines)],
            "machines": np.ones(len(machines), dtype=np.int64),
            "gpus": [machine.gpus for machine in machines],
            "energy_kwh": found.machines.kwh,
            "energy_unallocated_kwh": found.unallocated.kwh,
            "carbon_kg": found.machines.carbon_g / G_PER_KG,
            "cost_usd": found.machines.cost_usd,
        }
    )
    sums = pl.exclude("kind").sum()
    return pl.concat(
        [
            each.group_by("kind", maintain_order=True).agg(sums).sort("kind"),
            each.select(pl.lit(ALL).alias("kind"), sums),
        ]
    )


def _moments(unix_s: FloatArray) -> pl.Series:
    return pl.Series((unix_s * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC"))


def _per(amounts: FloatArray, seconds: FloatArray) -> FloatArray:
    each: FloatArray = np.divide(amounts, seconds, out=np.full(len(seconds), np.nan), where=seconds > 0.0)
    return each


def _level(series: HourlySeries | None, hour_ts: FloatArray) -> FloatArray:
    return np.full(len(hour_ts), np.nan) if series is None else series.at(hour_ts)

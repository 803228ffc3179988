"""Convert energy accounts to metrics of a result row, and to tables by job, by hour and by kind of machine."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.energy.account import WATTS_PER_KW, EnergyAccount
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
    totals = zip(columns, account.total(), of_jobs, base.total(), strict=True)
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


JOBS: Final = "energy_jobs.csv"
HOURS: Final = "energy_hours.csv"
MACHINES: Final = "energy_machines.csv"


def energy_tables(
    account: EnergyAccount,
    site: Site,
    machines: Sequence[Machine],
    names: Mapping[str, Sequence[str | None]],
    at_s: FloatArray,
) -> dict[str, pl.DataFrame]:
    """Return the energy tables by file name; `names` are columns with one value per job, `at_s` submission times."""
    carbon, price = (None, None) if site.grid is None else (site.grid.carbon, site.grid.price)
    hours = pl.DataFrame(
        {
            "timestamp": _moments(account.hour_ts),
            "energy_kwh": account.hours.kwh,
            "carbon_g_per_kwh": _level(carbon, account.hour_ts),
            "price_usd_per_kwh": _level(price, account.hour_ts),
            "carbon_kg": account.hours.carbon_g / G_PER_KG,
            "cost_usd": account.hours.cost_usd,
        }
    )
    tables = {JOBS: _jobs(account, site, names, at_s), HOURS: hours, MACHINES: _machines(account, site, machines)}
    return {name: table.fill_nan(None) for name, table in tables.items()}


def _jobs(
    account: EnergyAccount, site: Site, names: Mapping[str, Sequence[str | None]], at_s: FloatArray
) -> pl.DataFrame:
    """Return one row per job: energy in kWh, mean power in W and emissions in kg, in columns named as in codecarbon.

    `duration` is the time in seconds for which the job held machines. `cpu_energy` and `gpu_energy` include the job's
    share of idle energy, which is also in `idle_energy`; they exclude PUE. `emissions` and `cost_usd` include PUE.
    `use_known` is false if some of the job's use is assumed.
    """
    cpu = account.jobs_parts_kwh[:, 0] + account.jobs_parts_kwh[:, 2]
    gpu = account.jobs_parts_kwh[:, 1] + account.jobs_parts_kwh[:, 3]
    emissions = account.jobs.carbon_g / G_PER_KG
    columns = {
        "timestamp": _moments(account.start_ts + at_s),
        "duration": account.held_s,
        "emissions": emissions,
        "emissions_rate": _per(emissions, account.held_s),
        "cpu_power": _per(cpu * WATTS_PER_KW * HOUR_S, account.held_s),
        "gpu_power": _per(gpu * WATTS_PER_KW * HOUR_S, account.held_s),
        "cpu_energy": cpu,
        "gpu_energy": gpu,
        "idle_energy": account.jobs_parts_kwh[:, 2:].sum(axis=1),
        "energy_consumed": account.jobs.kwh,
        "cost_usd": account.jobs.cost_usd,
    }
    own = {name: pl.Series(values, dtype=pl.String) for name, values in names.items()}
    return pl.DataFrame(own | columns).with_columns(
        zone=pl.lit(site.grid.zone if site.grid else ""),
        pue=pl.lit(account.pue),
        use_known=pl.Series(account.known),
    )


def _machines(account: EnergyAccount, site: Site, machines: Sequence[Machine]) -> pl.DataFrame:
    """Return one row per kind of machine, sorted by name, and a last row with the totals."""
    each = pl.DataFrame(
        {
            "kind": [node.name for node in site.table.nodes(machines)],
            "machines": np.ones(len(machines), dtype=np.int64),
            "gpus": [machine.gpus for machine in machines],
            "energy_kwh": account.machines.kwh,
            "energy_unallocated_kwh": account.unallocated.kwh,
            "carbon_kg": account.machines.carbon_g / G_PER_KG,
            "cost_usd": account.machines.cost_usd,
        }
    )
    sums = pl.exclude("kind").sum()
    return pl.concat([each.group_by("kind").agg(sums).sort("kind"), each.select(pl.lit("all").alias("kind"), sums)])


def _moments(unix_s: FloatArray) -> pl.Series:
    return pl.Series((unix_s * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC"))


def _per(amounts: FloatArray, seconds: FloatArray) -> FloatArray:
    each: FloatArray = np.divide(amounts, seconds, out=np.full(len(seconds), np.nan), where=seconds > 0.0)
    return each


def _level(series: HourlySeries | None, hour_ts: FloatArray) -> FloatArray:
    return np.full(len(hour_ts), np.nan) if series is None else series.at(hour_ts)

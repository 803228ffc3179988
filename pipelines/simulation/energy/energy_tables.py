"""An account of energy as tables: by job as codecarbon writes it, by hour with the grid's series, by kind of machine.

Nothing is counted here. Called by `pipelines.simulation.simulation_folder`, which writes them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.energy.accounting import EnergyAccount
from pipelines.simulation.energy.energy_rows import G_PER_KG
from pipelines.simulation.energy.site import Site
from pipelines.simulation.energy.window import WATTS_PER_KW
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import HourlySeries
from scheduler_core.types import FloatArray

JOBS: Final = "energy_jobs.csv"
HOURS: Final = "energy_hours.csv"
MACHINES: Final = "energy_machines.csv"
FILES: Final = (JOBS, HOURS, MACHINES)

ALL: Final = "all"
_SECONDS_PER_HOUR: Final = 3600.0
_NO_ZONE: Final = ""


def energy_tables(
    found: EnergyAccount,
    site: Site,
    machines: Sequence[Machine],
    names: Mapping[str, Sequence[str | None]],
    at_s: FloatArray,
) -> dict[str, pl.DataFrame]:
    """Return the tables by the names of their files; `names` are columns by job, `at_s` their submissions."""
    tables = {
        JOBS: job_table(found, site, names, at_s),
        HOURS: hour_table(found, site),
        MACHINES: machine_table(found, site, machines),
    }
    return {name: table.fill_nan(None) for name, table in tables.items()}


def job_table(
    found: EnergyAccount, site: Site, names: Mapping[str, Sequence[str | None]], at_s: FloatArray
) -> pl.DataFrame:
    """Return one row per job: kWh, W (means while it ran) and kg, named as codecarbon names them.

    `duration` is how long it held machines, in seconds. `cpu_energy` and `gpu_energy` hold its part of the idle draw,
    which is also told as `idle_energy`; they are the machines', `emissions` and `cost_usd` the site's (times `pue`).
    `use_known` is false where some of its use is assumed.
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
            pl.Series("cpu_power", _per(cpu * WATTS_PER_KW * _SECONDS_PER_HOUR, found.held_s)),
            pl.Series("gpu_power", _per(gpu * WATTS_PER_KW * _SECONDS_PER_HOUR, found.held_s)),
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
    """Return one row per hour of the grid: the cluster's energy, the series, and what came of them."""
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
    """Return one row per kind of machine, in the order of their names, and one of all."""
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

"""What an account of energy comes to as figures of a row, beside those without shrinking and without waiting.

Pure functions; files are `energy_tables`' matter. Called by `pipelines.simulation.simulate` and
`pipelines.studies.energy`.
"""

import math
from typing import Final

from pipelines.simulation.energy.accounting import EnergyAccount
from pipelines.simulation.energy.amounts import Amounts
from pipelines.simulation.measures.metrics import Metrics
from scheduler_core.types import FloatArray

G_PER_KG: Final = 1000.0

SHOWN: Final = (
    "energy_kwh",
    "carbon_kg",
    "cost_usd",
    "energy_per_finished_saved_frac",
    "carbon_per_finished_saved_frac",
    "cost_per_finished_saved_frac",
)
"""What a first look needs."""

_WHOLE: Final = ("energy_kwh", "carbon_kg", "cost_usd")


def energy_figures(
    found: EnergyAccount, metrics: Metrics, base: EnergyAccount, base_metrics: Metrics, *, grid: bool
) -> dict[str, float]:
    """Return the figures of one run: of the cluster, of its jobs alone, and a finished job's share; and what is saved.

    `*_saved_frac` is 1 - figure / base, over the size of the base where that is negative. Per finished job (completed,
    or failed of itself), as the arms may differ in how much they do by the horizon. kWh are those of the machines;
    carbon and cost are the site's, and are left out without a `grid`. `*_jobs_*_per_kwh` is what the jobs' kWh met on
    the grid: what shifting changes, whatever placement does to the kWh. `*_job_mean_*` is the mean over jobs of it:
    what the ordinary job met, however little it draws.
    """
    own, other = _of(found, metrics), _of(base, base_metrics)
    if not grid:
        own = {name: value for name, value in own.items() if name.startswith("energy")}
    figures = dict(own)
    if grid:
        figures |= _met(found.jobs)
    for name in _WHOLE:
        if name in own:
            what, each = name.rsplit("_", 1)[0], f"{name}_per_finished"
            figures[f"{what}_saved_frac"] = _saved(own[name], other[name])
            figures[f"{what}_per_finished_saved_frac"] = _saved(own[each], other[each])
    return figures


def _met(jobs: Amounts) -> dict[str, float]:
    total = jobs.total()
    return {
        "carbon_jobs_g_per_kwh": _per(total.carbon_g, total.kwh),
        "carbon_job_mean_g_per_kwh": _mean_per(jobs.carbon_g, jobs.kwh),
        "cost_jobs_usd_per_kwh": _per(total.cost_usd, total.kwh),
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
        figures[f"{name}_per_finished"] = _per(cluster, finished)
    return figures


def _saved(value: float, base: float) -> float:
    return (base - value) / abs(base) if base else math.nan


def _mean_per(amounts: FloatArray, over: FloatArray) -> float:
    ran = over > 0.0
    return float((amounts[ran] / over[ran]).mean()) if ran.any() else math.nan


def _per(amount: float, over: float) -> float:
    return amount / over if over else math.nan

"""How busy machines are: `utilisation_by_hour`, `utilisation_by_machine_type`.

Each is one SELECT, over machine-hours (the mean of one machine's samples in one hour), so that a machine that is
sampled each minute weighs no more than one sampled each hour. Zones are whole hours from UTC. Called through
`pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import HOUR_SINCE_1970, MACHINE_TYPE, MEAN_FRACTIONS, SAMPLES
from pipelines.statistics.question import ZONE, By, Split, ask, mean, percentiles, quantiles

MACHINE_HOUR_DIMENSIONS: Final = {
    "cluster": "cluster",
    "machine": "machine",
    "machine_type": "machine_type",
    "weekday": "isodow(local_hour)",
    "date": "CAST(CAST(local_hour AS DATE) AS VARCHAR)",
    "month": "strftime(local_hour, '%Y-%m')",
}


def utilisation_by_hour(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return the busy fraction of CPU, memory and GPUs in each local hour of the day, over machine-hours.

    `samples` counts the rows behind them, `machines` the machines. PAI publishes one row per worker: its mean over
    the worker's life, at the hour it began. Hours in which a machine was not measured are absent, not idle.
    """
    return _utilisation(lake, trace, by, cluster, key="hour", of="hour(local_hour)")


def utilisation_by_machine_type(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return the busy fraction of CPU, memory and GPUs of each type of machine, over machine-hours.

    The type is the GPU's name, else the machine's GPUs and their memory, `unknown` for machines no list has.
    As `utilisation_by_hour`.
    """
    return _utilisation(lake, trace, by, cluster, key="machine_type", of="machine_type")


def _utilisation(lake: Lake, trace: str, by: By, cluster: str | None, *, key: str, of: str) -> pl.DataFrame:
    split = Split(by, {name: each for name, each in MACHINE_HOUR_DIMENSIONS.items() if name != key})
    cells = ", ".join(
        f"{{'resource': '{name}', 'frac': {name}_frac, 'samples': {name}_samples}}" for name in ("cpu", "mem", "gpu")
    )
    sql = f"""
    WITH machine_hour AS (
        SELECT cluster, machine, {HOUR_SINCE_1970} AS hour_since_1970, {MEAN_FRACTIONS}, {SAMPLES}
        FROM machine_usage WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY ALL
    ), typed AS (
        SELECT h.*, timezone({ZONE}, to_timestamp(3600 * hour_since_1970)) AS local_hour,
            {MACHINE_TYPE} AS machine_type
        FROM machine_hour h LEFT JOIN (
            SELECT cluster, machine, gpu_type, gpus, gpu_mem_gib FROM machines WHERE trace = $trace
        ) USING (cluster, machine)
    ), cell AS (
        SELECT {split.defined}{of} AS "{key}", machine AS of_machine, unnest([{cells}], recursive := true) FROM typed
    ), part AS (
        SELECT {split.listed}"{key}", resource, count(DISTINCT of_machine) AS machines, count(*) AS machine_hours,
            CAST(sum(samples) AS BIGINT) AS samples, {mean("frac")} AS mean_frac, {quantiles("frac")} AS q,
            max(frac) AS max_frac
        FROM cell WHERE frac IS NOT NULL GROUP BY ALL
    )
    SELECT {split.listed}"{key}", resource, machines, machine_hours, samples, mean_frac, {percentiles("frac")}, max_frac
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)

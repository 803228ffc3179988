"""What jobs used, and which resources a trace tells of: `use`, `resources_told`.

Each is one SELECT; requests beside use are in `claims`. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.statistics.question import JOB_DIMENSIONS, JOB_ROWS, By, Split, ask, mean, percentiles, quantiles

MEASURES: Final = (
    "used_cpu_cores",
    "used_gpus",
    "mem_avg_gib",
    "mem_max_gib",
    "gpu_mem_avg_gib",
    "gpu_mem_max_gib",
    "net_read_bytes_per_s",
    "net_write_bytes_per_s",
)

_TOLD: Final = {
    "cpu": ("req_cpu_cores", "used_cpu_cores"),
    "gpu": ("req_gpus", "used_gpus"),
    "mem": ("req_mem_gib", "mem_avg_gib", "mem_max_gib"),
    "gpu_mem": ("gpu_mem_avg_gib", "gpu_mem_max_gib"),
    "net": ("net_read_bytes_per_s", "net_write_bytes_per_s"),
}


def use(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return what measured tasks used, per instance: mean and percentiles over tasks, a row per measure.

    The measure's name ends in its unit. Every measured task counts once, parameter servers too.
    """
    split = Split(by, JOB_DIMENSIONS)
    cells = ", ".join(f"{{'measure': '{name}', 'value': {name}}}" for name in MEASURES)
    sql = f"""
    WITH {JOB_ROWS}, cell AS (
        SELECT {split.defined}unnest([{cells}], recursive := true)
        FROM job JOIN usage USING (trace, cluster, job_id, role)
    ), part AS (
        SELECT {split.listed}measure, count(*) AS tasks, {mean("value")} AS mean, {quantiles("value")} AS q,
            max(value) AS max
        FROM cell WHERE value IS NOT NULL GROUP BY ALL
    )
    SELECT {split.listed}measure, tasks, mean, {percentiles("value")}, max FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def resources_told(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return of which kinds of resources (CPU, GPU, memory, GPU memory, network) any job tells a request or a use."""
    split = Split(by, JOB_DIMENSIONS)
    told = ", ".join(
        f"coalesce(bool_or({' OR '.join(f'{column} IS NOT NULL' for column in columns)}), false) AS {kind}"
        for kind, columns in _TOLD.items()
    )
    kinds = " + ".join(f"CAST({kind} AS BIGINT)" for kind in _TOLD)
    sql = f"""
    WITH {JOB_ROWS}, part AS (
        SELECT {split.defined}{told}
        FROM job LEFT JOIN usage USING (trace, cluster, job_id, role) GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}{kinds} AS kinds, {", ".join(_TOLD)} FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)

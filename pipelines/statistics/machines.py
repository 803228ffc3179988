"""What there is to run on: `machine_classes`, `capacity`.

Each is one SELECT; how busy machines are is in `utilisation`. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.statistics.question import By, Split, ask

MACHINE_DIMENSIONS: Final = {"cluster": "cluster"}
CAPACITY_DIMENSIONS: Final = {"cluster": "cluster", "vc": "vc", "date": "CAST(date AS VARCHAR)"}


def machine_classes(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return the classes of machines: type, cores, memory, GPUs of each and their memory; how many, with what in all.

    Null where the publisher does not tell; such machines are a class of their own.
    """
    split = Split(by, MACHINE_DIMENSIONS)
    sql = f"""
    SELECT {split.defined}gpu_type, cpu_cores, mem_gib, gpus, gpu_mem_gib, count(*) AS machines,
        CAST(sum(gpus) AS BIGINT) AS total_gpus
    FROM machines WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY ALL ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def capacity(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how many GPUs were there, over dates: mean, least and most of all virtual clusters together.

    Where several clusters are asked for, a date's GPUs are those of all of them.
    """
    split = Split(by, CAPACITY_DIMENSIONS)
    date = "" if "date" in split.names else "date, "
    sql = f"""
    WITH day AS (
        SELECT {split.defined}{date}sum(gpus) AS gpus
        FROM capacity WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY ALL
    )
    SELECT {split.listed}count(*) AS days, CAST(min(date) AS VARCHAR) AS first_date,
        CAST(max(date) AS VARCHAR) AS last_date, CAST(avg(gpus) AS DOUBLE) AS mean_gpus,
        CAST(min(gpus) AS BIGINT) AS min_gpus, CAST(max(gpus) AS BIGINT) AS max_gpus
    FROM day GROUP BY ALL HAVING count(*) > 0 ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)

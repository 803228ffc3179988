"""How large jobs are, and how their requests cut GPUs up: `sizes`, `request_fragmentation`.

Each is one SELECT. Called through `pipelines.statistics`.
"""

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import EXACT, total
from pipelines.statistics.question import (
    JOB_DIMENSIONS,
    JOB_ROWS,
    By,
    Split,
    ask,
    mean,
    percentiles,
    quantiles,
)


def sizes(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how many GPUs jobs ask for over all their instances: mean, percentiles, shares; and GPU-hours of a job.

    Over jobs whose request is known; `cpu_jobs` ask for none, and everything but these counts is over `gpu_jobs`.
    `under_one_gpu_share` ask for less than one GPU in all, `one_gpu_share` for exactly one.
    """
    split = Split(by, JOB_DIMENSIONS)
    sql = f"""
    WITH {JOB_ROWS}, part AS (
        SELECT {split.defined}count(*) AS jobs, count(*) FILTER (WHERE gpus = 0) AS cpu_jobs,
            count(*) FILTER (WHERE gpus > 0) AS gpu_jobs,
            {mean("CASE WHEN gpus > 0 THEN gpus END")} AS mean_gpus,
            {quantiles("CASE WHEN gpus > 0 THEN gpus END")} AS q, max(CASE WHEN gpus > 0 THEN gpus END) AS max_gpus,
            avg(CASE WHEN gpus > 0 THEN CAST(gpus < 1 AS INTEGER) END) AS under_one_gpu_share,
            avg(CASE WHEN gpus > 0 THEN CAST(gpus = 1 AS INTEGER) END) AS one_gpu_share,
            avg(CASE WHEN gpus > 0 THEN CAST(instances = 1 AS INTEGER) END) AS one_instance_share,
            {mean("CASE WHEN gpus > 0 THEN gpu_hours END")} AS mean_gpu_hours,
            quantile_cont(CASE WHEN gpus > 0 THEN gpu_hours END, 0.99) AS p99_gpu_hours,
            max(CASE WHEN gpus > 0 THEN gpu_hours END) AS max_gpu_hours
        FROM job WHERE gpus IS NOT NULL GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}jobs, cpu_jobs, gpu_jobs, mean_gpus, {percentiles("gpus")}, max_gpus, under_one_gpu_share,
        one_gpu_share, one_instance_share, mean_gpu_hours, p99_gpu_hours, max_gpu_hours
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def request_fragmentation(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return into which pieces requests cut GPUs: tasks, instances and GPU-hours by the GPUs one instance asks for.

    Over tasks that ask for GPUs. `requests` counts different requests (CPU, memory, GPUs) of the class.
    `left_over_frac` is the fraction that stays free of the GPUs that instances of this request alone would fill (0.3
    leaves 0.1 of a GPU, 1.5 takes two and leaves 0.25), a mean over instances.
    """
    split = Split(by, {name: of for name, of in JOB_DIMENSIONS.items() if name != "request_class"})
    sql = f"""
    WITH {JOB_ROWS}, piece AS (
        SELECT *, {JOB_DIMENSIONS["request_class"]} AS request_class,
            greatest(0, CASE WHEN req_gpus < 1 THEN 1 - floor(1 / req_gpus + 1e-9) * req_gpus
                ELSE 1 - req_gpus / ceil(req_gpus) END) AS left_over
        FROM job WHERE req_gpus > 0
    ), part AS (
        SELECT {split.defined}request_class, count(*) AS tasks, CAST(sum(instances) AS BIGINT) AS total_instances,
            count(DISTINCT (req_cpu_cores, req_mem_gib, req_gpus)) AS requests, {total("gpu_hours")} AS gpu_hours,
            sum(CAST(gpu_hours AS {EXACT})) AS held,
            {total("left_over * instances")} / sum(instances) AS left_over_frac
        FROM piece GROUP BY ALL
    )
    SELECT {split.listed}request_class, tasks, CAST(tasks AS DOUBLE) / sum(tasks) OVER ({split.window}) AS share,
        total_instances, requests, gpu_hours,
        gpu_hours / nullif(CAST(sum(held) OVER ({split.window}) AS DOUBLE), 0) AS gpu_hours_share, left_over_frac
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)

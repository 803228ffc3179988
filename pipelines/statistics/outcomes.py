"""How jobs end, and what that cost: `status_counts`, `gpu_hours_by_status`.

Each is one SELECT. Called through `pipelines.statistics`.
"""

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import EXACT, total
from pipelines.statistics.question import JOB_DIMENSIONS, JOB_ROWS, By, Split, ask


def status_counts(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how many jobs ended (or stand at the trace's end) in each status, and their share.

    A row is a task of PAI, a job elsewhere. Status null: the trace does not tell.
    """
    split = Split(by, _without_status())
    sql = f"""
    WITH {JOB_ROWS}, part AS (
        SELECT {split.defined}status, count(*) AS jobs FROM job GROUP BY ALL
    )
    SELECT {split.listed}status, jobs, CAST(jobs AS DOUBLE) / sum(jobs) OVER ({split.window}) AS share
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def gpu_hours_by_status(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how many jobs that ask for GPUs ended in each status, and the GPU-hours they held.

    GPU-hours are all GPUs of the job times its run time, null where no run time of that status is known. Those of jobs
    still running count up to the trace's end. Status null: the trace does not tell.
    """
    split = Split(by, _without_status())
    sql = f"""
    WITH {JOB_ROWS}, part AS (
        SELECT {split.defined}status, count(*) AS gpu_jobs, {total("gpu_hours")} AS gpu_hours,
            sum(CAST(gpu_hours AS {EXACT})) AS held
        FROM job WHERE gpus > 0 GROUP BY ALL
    )
    SELECT {split.listed}status, gpu_jobs,
        CAST(gpu_jobs AS DOUBLE) / sum(gpu_jobs) OVER ({split.window}) AS gpu_jobs_share, gpu_hours,
        gpu_hours / nullif(CAST(sum(held) OVER ({split.window}) AS DOUBLE), 0) AS gpu_hours_share
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def _without_status() -> dict[str, str]:
    return {name: of for name, of in JOB_DIMENSIONS.items() if name != "status"}

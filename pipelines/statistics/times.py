"""How long jobs run, wait and take in all: `run_time`, `queueing_delay`, `jct`.

Each is one SELECT; percentiles are continuous quantiles over jobs. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.statistics.question import (
    JOB_DIMENSIONS,
    JOB_ROWS,
    By,
    Split,
    ask,
    mean,
    percentiles,
    quantiles,
    share_of_gpu_hours,
)

HOURS: Final = (1, 6, 24, 48)
"""Thresholds: the shares of jobs, and of GPU-hours, beyond so many hours."""


def run_time(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how long jobs ran, in seconds: mean, percentiles, and the shares beyond 1, 6, 24 and 48 hours.

    Over all jobs whose run time is known, however they ended; lower bounds count as they stand (`censored_share`).
    `gpu_hours_over_*_share` weighs each job by its GPU-hours; null where no job has any.
    """
    return _duration(
        lake, trace, by, cluster, value="run_s", beside=("avg(CAST(run_s_censored AS INTEGER)) AS censored_share",)
    )


def queueing_delay(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how long jobs waited from submission to start, in seconds: as `run_time`.

    Over all jobs whose wait is known: a trace that lets every job start when submitted tells no wait, not none.
    """
    return _duration(lake, trace, by, cluster, value="queue_s")


def jct(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how long jobs took from submission to end, in seconds: as `run_time`.

    Over jobs that ended and whose wait is known. What lies between attempts counts, so it may exceed wait and run.
    """
    return _duration(
        lake,
        trace,
        by,
        cluster,
        value="CASE WHEN queue_s IS NOT NULL THEN (epoch_us(end_ts) - epoch_us(submit_ts)) / 1e6 END",
    )


def _duration(
    lake: Lake, trace: str, by: By, cluster: str | None, *, value: str, beside: tuple[str, ...] = ()
) -> pl.DataFrame:
    split = Split(by, JOB_DIMENSIONS)
    beyond = ", ".join(
        f"avg(CAST(seconds > {3600 * h} AS INTEGER)) AS over_{h}h_share, "
        f"{share_of_gpu_hours(f'seconds > {3600 * h}')} AS gpu_hours_over_{h}h_share"
        for h in HOURS
    )
    sql = f"""
    WITH {JOB_ROWS}, told AS (
        SELECT {split.defined}{value} AS seconds, gpu_hours, run_s_censored FROM job
    ), part AS (
        SELECT {split.listed}count(*) AS jobs, {mean("seconds")} AS mean_s, min(seconds) AS min_s,
            {quantiles("seconds")} AS q, max(seconds) AS max_s, {", ".join((beyond, *beside))}
        FROM told WHERE seconds IS NOT NULL GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}jobs, mean_s, min_s, {percentiles("s")}, max_s, COLUMNS('.*_share')
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)

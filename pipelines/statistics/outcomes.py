"""How jobs end, and what that cost: `status_counts`, `gpu_hours_by_status`.

Each is one SELECT. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import EXACT, total
from pipelines.statistics.query import JOB_DIMENSIONS, JOB_ROWS, By, Split, ask, mean, percentiles, quantiles


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


TOP_SHARE: Final = 0.05
"""The users said to be at the top: of a hundred, five."""


def group_recurrence(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how often groups come again: groups, jobs of a group, and the shares of jobs in those that recur.

    Over jobs with a group; of PAI a job is several tasks and counts once. A group is one within its cluster.
    `again_share` are the jobs that are not their group's first.
    """
    split = Split(by, JOB_DIMENSIONS)
    sql = f"""
    WITH {JOB_ROWS}, party AS (
        SELECT {split.defined}cluster AS of_cluster, "group" AS of_group, count(DISTINCT job_id) AS jobs
        FROM job WHERE "group" IS NOT NULL GROUP BY ALL
    ), part AS (
        SELECT {split.listed}count(*) AS groups, CAST(sum(jobs) AS BIGINT) AS jobs, avg(jobs) AS mean_jobs,
            {quantiles("jobs")} AS q, max(jobs) AS max_jobs,
            avg(CAST(jobs > 1 AS INTEGER)) AS recurring_groups_share,
            sum(CASE WHEN jobs > 1 THEN jobs ELSE 0 END) / CAST(sum(jobs) AS DOUBLE) AS recurring_jobs_share,
            sum(CASE WHEN jobs >= 5 THEN jobs ELSE 0 END) / CAST(sum(jobs) AS DOUBLE) AS jobs_in_groups_of_5_share,
            1 - count(*) / CAST(sum(jobs) AS DOUBLE) AS again_share
        FROM party GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}groups, jobs, mean_jobs, {percentiles("jobs")}, max_jobs,
        recurring_groups_share, recurring_jobs_share, jobs_in_groups_of_5_share, again_share
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def user_concentration(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return how unevenly users use the cluster: tasks of a user, and what the first user and the top 5 % hold.

    Over tasks with a user; a user is one within its cluster. The top is by tasks for `*_tasks_share`, by GPU-hours for
    `*_gpu_hours_share`, and at least one user.
    """
    split = Split(by, JOB_DIMENSIONS)
    part = f"({split.window})"
    top = f"ceil({TOP_SHARE} * users)"
    sql = f"""
    WITH {JOB_ROWS}, party AS (
        SELECT {split.defined}cluster AS of_cluster, "user" AS of_user, count(*) AS tasks,
            sum(CAST(gpu_hours AS {EXACT})) AS gpu_hours
        FROM job WHERE "user" IS NOT NULL GROUP BY ALL
    ), ranked AS (
        SELECT *, count(*) OVER {part} AS users,
            row_number() OVER ({split.window} ORDER BY tasks DESC) AS by_tasks,
            row_number() OVER ({split.window} ORDER BY gpu_hours DESC NULLS LAST) AS by_gpu_hours
        FROM party
    ), part AS (
        SELECT {split.listed}users, CAST(sum(tasks) AS BIGINT) AS tasks, {mean("tasks")} AS mean_tasks,
            {quantiles("tasks")} AS q, max(tasks) AS max_tasks,
            max(tasks) / CAST(sum(tasks) AS DOUBLE) AS first_tasks_share,
            sum(tasks) FILTER (WHERE by_tasks <= {top}) / CAST(sum(tasks) AS DOUBLE) AS top_tasks_share,
            {total("gpu_hours")} AS gpu_hours,
            CAST(max(gpu_hours) AS DOUBLE) / nullif({total("gpu_hours")}, 0) AS first_gpu_hours_share,
            {total("gpu_hours", f"by_gpu_hours <= {top}")} / nullif({total("gpu_hours")}, 0) AS top_gpu_hours_share
        FROM ranked GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}users, tasks, mean_tasks, {percentiles("tasks")}, max_tasks, first_tasks_share,
        top_tasks_share, gpu_hours, first_gpu_hours_share, top_gpu_hours_share
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)

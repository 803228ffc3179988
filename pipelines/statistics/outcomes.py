"""Statistics of job ends, users and groups."""

from typing import Final

from pipelines.lake.views import EXACT, total
from pipelines.statistics.statistic import (
    JOB_DIMENSIONS,
    JOB_ROWS,
    Split,
    mean,
    percentiles,
    quantiles,
    statistic,
    without,
)

_WITHOUT_STATUS: Final = without("status", JOB_DIMENSIONS)


@statistic(title="Jobs by status", unit="jobs", by=_WITHOUT_STATUS, needs={"jobs": ()})
def status_counts(split: Split) -> str:
    """Return the number of jobs with each status and their share; running and waiting are states at the trace's end.

    A row of `jobs` is a task in PAI and a job in other traces. A null status is unknown.
    """
    return f"""
    WITH {JOB_ROWS}, part AS (
        SELECT {split.defined}status, count(*) AS jobs FROM job GROUP BY ALL
    )
    SELECT {split.listed}status, jobs, CAST(jobs AS DOUBLE) / sum(jobs) OVER ({split.window}) AS share
    FROM part ORDER BY ALL
    """


@statistic(title="GPU-hours by status", unit="GPU-hours", by=_WITHOUT_STATUS, needs={"jobs": ("req_gpus",)})
def gpu_hours_by_status(split: Split) -> str:
    """Return the number of jobs that request GPUs with each status, and their GPU-hours.

    GPU-hours are the job's GPUs over all instances times its run time; null if no run time with that status is known.
    Running jobs count up to the trace's end. A null status is unknown.
    """
    return f"""
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


TOP_SHARE: Final = 0.05
"""Share of users that `user_concentration` counts as top users."""


@statistic(title="Recurrence of groups", unit="jobs", needs={"jobs": ("group",)})
def group_recurrence(split: Split) -> str:
    """Return how often groups recur: the number of groups, jobs per group, and the shares of jobs in recurring groups.

    Only jobs with a group are counted, a PAI job with several tasks once. Groups of different clusters are different. A
    group recurs if it has more than one job. `again_share` is the share of jobs that are not the first of their group.
    """
    return f"""
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


@statistic(title="Concentration on users", unit="tasks, GPU-hours", needs={"jobs": ("user",)})
def user_concentration(split: Split) -> str:
    """Return how unevenly users use the cluster: tasks per user, and the shares of the largest user and of the top 5 %.

    Only tasks with a user are counted; users of different clusters are different. The top 5 % are at least one user;
    users are ranked by tasks for `*_tasks_share` and by GPU-hours for `*_gpu_hours_share`.
    """
    part = f"({split.window})"
    top = f"ceil({TOP_SHARE} * users)"
    return f"""
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

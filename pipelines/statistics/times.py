"""Arrivals and durations of jobs: `period`, `arrivals_by_*`, `run_time`, `queueing_delay`, `jct`.

Each is one query; hours and days are in the trace's time zone, percentiles are continuous quantiles over jobs.
"""

from typing import Final

from pipelines.statistics.statistic import (
    JOB_ROWS,
    ZONE,
    Split,
    mean,
    percentiles,
    quantiles,
    share_of_gpu_hours,
    statistic,
)

_NO_ARRIVALS: Final = "all jobs have the same submission time, so arrivals are unknown"

TIMED: Final = """timed AS (
    SELECT cluster, min(job_id) = max(job_id) OR min(submit_ts) < max(submit_ts) AS told
    FROM jobs WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY cluster)"""
"""SQL of the CTE `timed`: whether each cluster records arrivals; it does not if all its submission times are equal."""

_FIRST_KNOWN_YEAR: Final = 1990
"""Traces that hide their dates count from an unknown day, kept as 1970-01-01; no trace is older than this year."""


def _moment(local: str) -> str:
    """Return the SQL that formats a local time; of a trace that hides its dates, as "day 12, 00:00:28"."""
    day = f"'day ' || (1 + date_diff('day', DATE '1970-01-01', CAST({local} AS DATE)))"
    return (
        f"CASE WHEN year({local}) < {_FIRST_KNOWN_YEAR} THEN {day} || strftime({local}, ', %H:%M:%S') "
        f"ELSE strftime({local}, '%Y-%m-%d %H:%M:%S') END"
    )


@statistic(title="Period and population", unit="counts", needs={"jobs": ()})
def period(split: Split) -> str:
    """Return the number of jobs, the first and last submission (local time), the days between, and counts of users.

    `tasks` counts rows, `jobs` counts distinct job ids (a PAI job has several tasks). `days` is the time from the first
    to the last submission; it and both submission times are null if all jobs have the same submission time, because
    the trace then records no arrivals. If a trace hides its dates, its submission times are days of the trace, as
    `day 12, 00:00:28`. `users`, `groups` and `vcs` (virtual clusters) count distinct names; null if the trace has none.
    """
    names = ", ".join(
        f'nullif(count(DISTINCT CASE WHEN "{name}" IS NOT NULL THEN (cluster, "{name}") END), 0) AS {name}s'
        for name in ("user", "group", "vc")
    )
    return f"""
    WITH {JOB_ROWS}, {TIMED}, dated AS (
        SELECT *, CASE WHEN told THEN submit_local END AS come_local, CASE WHEN told THEN submit_ts END AS come
        FROM job JOIN timed USING (cluster)
    )
    SELECT {split.defined}count(*) AS tasks, count(DISTINCT (cluster, job_id)) AS jobs,
        {_moment("min(come_local)")} AS first_submit, {_moment("max(come_local)")} AS last_submit,
        {ZONE} AS zone, epoch(max(come) - min(come)) / 86400 AS days, {names}
    FROM dated GROUP BY ALL HAVING count(*) > 0 ORDER BY ALL
    """


@statistic(title="Arrivals by local hour", unit="jobs", needs={"jobs": ()}, otherwise=_NO_ARRIVALS)
def arrivals_by_hour(split: Split) -> str:
    """Return the number of jobs submitted in each local hour of the day (0 to 23), in total and per day.

    `share` is the share of all jobs (of the same `--by` values). `mean_per_day` and `median_per_day` are over all dates
    from the first to the last submission, including dates without a job and the incomplete first and last date.
    Clusters whose jobs all have the same submission time are left out.
    """
    return _arrivals(split, unit="hour", of_job="hour(submit_local)", of_date="unnest(range(24))")


@statistic(title="Arrivals by local weekday (Monday 1)", unit="jobs", needs={"jobs": ()}, otherwise=_NO_ARRIVALS)
def arrivals_by_weekday(split: Split) -> str:
    """Return the number of jobs submitted on each local weekday (1 Monday to 7 Sunday), in total and per day.

    Columns as in `arrivals_by_hour`; the mean and median are over the dates of that weekday.
    """
    return _arrivals(split, unit="weekday", of_job="isodow(submit_local)", of_date="isodow(date)")


def _arrivals(split: Split, *, unit: str, of_job: str, of_date: str) -> str:
    return f"""
    WITH {JOB_ROWS}, {TIMED}, arrival AS (
        SELECT {split.defined}CAST(submit_local AS DATE) AS date, {of_job} AS "{unit}", true AS there
        FROM job JOIN timed USING (cluster) WHERE told
    ), dates AS (
        SELECT CAST(unnest(range(min(date), max(date) + 1, INTERVAL 1 DAY)) AS DATE) AS date FROM arrival
    ), slots AS (
        SELECT {split.listed}date, {of_date} AS "{unit}", NULL AS there
        FROM (SELECT DISTINCT {split.listed}1 AS one FROM arrival), dates
    ), counted AS (
        SELECT {split.listed}"{unit}", date, count(there) AS jobs
        FROM (SELECT * FROM arrival UNION ALL BY NAME SELECT * FROM slots) GROUP BY ALL
    )
    SELECT {split.listed}"{unit}", CAST(sum(jobs) AS BIGINT) AS jobs,
        CAST(sum(jobs) AS DOUBLE) / sum(sum(jobs)) OVER ({split.window}) AS share,
        avg(jobs) AS mean_per_day, quantile_cont(jobs, 0.5) AS median_per_day, count(*) AS days,
        {ZONE} AS zone
    FROM counted GROUP BY {split.listed}"{unit}" ORDER BY ALL
    """


HOURS: Final = (1, 6, 24, 48)
"""Thresholds in hours for the shares of jobs and GPU-hours above them."""


@statistic(title="Run time", unit="s", needs={"jobs": ("run_s",)})
def run_time(split: Split) -> str:
    """Return the run time of jobs in seconds: mean, percentiles, and the shares above 1, 6, 24 and 48 hours.

    All jobs with a known run time count, whatever their status. Lower bounds count as run times; `censored_share` is
    their share. `over_*_share` is a share of jobs; `gpu_hours_over_*_share` weights each job by its GPU-hours, and is
    null if no job has GPU-hours.
    """
    return _duration(split, "run_s", "avg(CAST(run_s_censored AS INTEGER)) AS censored_share")


@statistic(title="Queueing delay", unit="s", needs={"jobs": ("queue_s",)})
def queueing_delay(split: Split) -> str:
    """Return the queueing delay of jobs (submission to start) in seconds, with the columns of `run_time`.

    All jobs with a known queueing delay count. If a trace starts every job when it is submitted, its delays are
    unknown, not zero.
    """
    return _duration(split, "queue_s")


@statistic(title="Job completion time (submit to end)", unit="s", needs={"jobs": ("queue_s", "end_ts")})
def jct(split: Split) -> str:
    """Return the job completion time (submission to end) in seconds, with the columns of `run_time`.

    All jobs that ended and have a known queueing delay count. Time between attempts is included, so it can exceed
    queueing delay plus run time.
    """
    return _duration(split, "CASE WHEN queue_s IS NOT NULL THEN (epoch_us(end_ts) - epoch_us(submit_ts)) / 1e6 END")


def _duration(split: Split, value: str, *beside: str) -> str:
    beyond = ", ".join(
        f"avg(CAST(seconds > {3600 * h} AS INTEGER)) AS over_{h}h_share, "
        f"{share_of_gpu_hours(f'seconds > {3600 * h}')} AS gpu_hours_over_{h}h_share"
        for h in HOURS
    )
    return f"""
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

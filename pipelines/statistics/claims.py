"""What jobs ask for against what they use: `over_claim`, `over_claim_as_published`, `request_and_use`.

Each is one SELECT over the claims of `pipelines.lake.views`; what a claim should be instead is
`pipelines.rightsizing.claims`'s. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import CLAIM_CELLS, CLAIMS_MEASURED, EXACT, IS_CLAIM, SLACK, total
from pipelines.statistics.query import (
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


_MEASURED: Final = f"""measured AS (
    SELECT * FROM job JOIN usage USING (trace, cluster, job_id, role) WHERE {CLAIMS_MEASURED})"""

PROBABILITIES: Final = tuple(i / 100 for i in range(101))
"""The points of a distribution that `request_and_use` gives."""


def over_claim(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return per resource the share of tasks that ask for more than they use, and the slack in resource-hours.

    Over measured tasks that ask for some of the resource, less parameter servers, which traces measure with their
    workers' sensors. `basis` says what a request is: `gpu_mem_gib`, which nobody asks for, is the GPUs asked for times
    the memory of their type, where that is told. `requested_h` is the request times instances times run time
    (core-hours, GiB-hours, GPU-hours); `slack_h` the part of it above use, `slack_share` over `requested_h`; `beyond_h`
    what was used above the request. Hours are null where no run time is known.
    """
    split = Split(by, JOB_DIMENSIONS)
    sql = f"""
    WITH {JOB_ROWS}, {_MEASURED}, cell AS (
        SELECT {split.defined}{CLAIM_CELLS}, instance_hours AS hours FROM measured
    ), part AS (
        SELECT {split.listed}resource, use, basis, count(*) AS tasks,
            avg(CAST(request > used AS INTEGER)) AS over_claim_share,
            {mean("request")} AS mean_request, {mean("used")} AS mean_use,
            {total("request * hours")} AS requested_h, {total("used * hours")} AS used_h,
            {total(f"{SLACK} * hours")} AS slack_h,
            {total("greatest(used - request, 0) * hours")} AS beyond_h
        FROM cell WHERE {IS_CLAIM} GROUP BY ALL
    )
    SELECT {split.listed}resource, use, basis, tasks, over_claim_share, mean_request, mean_use, requested_h, used_h,
        slack_h, slack_h / nullif(requested_h, 0) AS slack_share, beyond_h
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def over_claim_as_published(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return per resource the share of tasks that ask for more than they use, as PAI's own notebook counts them.

    Over all measured tasks, parameter servers too. `mem` compares main memory asked for with *GPU* memory used: the
    notebook's slip, kept here so that its figure can be checked. Only for that; `over_claim` is the statistic.

    References
    ----------
    Alibaba, cluster-trace-gpu-v2020, `analysis.ipynb`.
    """
    split = Split(by, JOB_DIMENSIONS)
    sql = f"""
    WITH {JOB_ROWS}, cell AS (
        SELECT {split.defined}unnest([
            {{'resource': 'cpu', 'request': req_cpu_cores, 'used': used_cpu_cores}},
            {{'resource': 'gpu', 'request': req_gpus, 'used': used_gpus}},
            {{'resource': 'mem', 'request': req_mem_gib, 'used': gpu_mem_avg_gib}}], recursive := true)
        FROM job JOIN usage USING (trace, cluster, job_id, role)
    )
    SELECT {split.listed}resource, count(*) AS tasks, avg(CAST(request > used AS INTEGER)) AS over_claim_share
    FROM cell WHERE request IS NOT NULL AND used IS NOT NULL GROUP BY ALL ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


def request_and_use(lake: Lake, trace: str, by: By = None, cluster: str | None = None) -> pl.DataFrame:
    """Return the distributions of request and use per resource: the value at each hundredth, for charts.

    `use` is the use the request was compared with and `basis` what a request is, as in `over_claim` (the same tasks, so
    no parameter servers; GPU memory is that of the GPUs asked for); `series` is `request` or `used`; `value` is per
    instance, in the resource's unit, at `probability`.
    """
    split = Split(by, JOB_DIMENSIONS)
    points = ", ".join(map(str, PROBABILITIES))
    sql = f"""
    WITH {JOB_ROWS}, {_MEASURED}, cell AS (
        SELECT {split.defined}{CLAIM_CELLS} FROM measured
    ), series AS (
        UNPIVOT (SELECT * FROM cell WHERE {IS_CLAIM}) ON request, used
        INTO NAME series VALUE value
    ), part AS (
        SELECT {split.listed}resource, use, basis, series, count(*) AS tasks, quantile_cont(value, [{points}]) AS q
        FROM series GROUP BY ALL
    )
    SELECT {split.listed}resource, use, basis, series, tasks, CAST(unnest([{points}]) AS DOUBLE) AS probability,
        unnest(q) AS value
    FROM part ORDER BY ALL
    """
    return ask(lake, sql, trace=trace, cluster=cluster)


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

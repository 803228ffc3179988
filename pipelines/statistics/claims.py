"""Requests and use: `sizes`, `request_fragmentation`, `over_claim*`, `request_and_use`, `use`, `resources_told`.

Each is one query that uses the SQL of `pipelines.lake.views`; `pipelines.rightsizing` recommends new requests.
"""

from typing import Final

from pipelines.lake.views import CLAIM_CELLS, CLAIMS_MEASURED, EXACT, IS_CLAIM, SLACK, total
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

_USED: Final = {"jobs": ("req_gpus",), "usage": ("used_gpus",)}


@statistic(title="Requested GPUs over all instances", unit="GPUs, GPU-hours", needs={"jobs": ("req_gpus",)})
def sizes(split: Split) -> str:
    """Return the number of GPUs that jobs request over all instances (mean, percentiles, shares), and their GPU-hours.

    `jobs` counts jobs with a known request, `cpu_jobs` those without and `gpu_jobs` those with GPUs; other columns are
    about `gpu_jobs`. `under_one_gpu_share` is the share that requests less than one GPU in total, `one_gpu_share` one.
    """
    return f"""
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


@statistic(
    title="GPU requests per instance",
    unit="tasks, GPU-hours",
    by=without("request_class", JOB_DIMENSIONS),
    needs={"jobs": ("req_gpus",)},
)
def request_fragmentation(split: Split) -> str:
    """Return tasks, instances and GPU-hours by class of GPU request per instance, and the share of GPUs left over.

    Only tasks that request GPUs count. `requests` counts distinct requests (CPU, memory, GPUs) in the class.
    `left_over_frac` is the GPU fraction that stays free if GPUs hold only instances with the same request (mean over
    instances): three instances of 0.3 GPUs leave 0.1 of a GPU free; one of 1.5 takes two GPUs and leaves 0.25 of each.
    """
    return f"""
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


_MEASURED: Final = f"""measured AS (
    SELECT * FROM job JOIN usage USING (trace, cluster, job_id, role) WHERE {CLAIMS_MEASURED})"""

PROBABILITIES: Final = tuple(i / 100 for i in range(101))
"""Probabilities of the quantiles that `request_and_use` returns."""


@statistic(title="Request above use", unit="tasks; core-, GPU- and GiB-hours", needs=_USED)
def over_claim(split: Split) -> str:
    """Return for each resource the share of tasks that request more than they use, and the slack in resource-hours.

    Only measured tasks with a request above zero are counted. Parameter servers are left out, because traces report
    their workers' measurements for them. `basis` is the origin of the request: jobs do not request GPU memory, so
    `gpu_mem_gib` is the requested GPUs times the memory of their type, if that is known. `requested_h` is request x
    instances x run time (core-hours, GiB-hours, GPU-hours), `used_h` is use x instances x run time; `slack_h` is the
    part of `requested_h` above the use, `slack_share` is `slack_h` / `requested_h`, `beyond_h` is the use above the
    request. Hours are null if no run time is known.
    """
    return f"""
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


@statistic(title="Request above use, as PAI's notebook counts it", unit="tasks", needs=_USED)
def over_claim_as_published(split: Split) -> str:
    """Return for each resource the share of tasks that request more than they use, as PAI's notebook counts them.

    All measured tasks count, also parameter servers. `mem` compares requested main memory with used *GPU* memory, an
    error of the notebook that is repeated here to check its number. For analyses use `over_claim`.

    References
    ----------
    Alibaba, cluster-trace-gpu-v2020, `analysis.ipynb`.
    """
    return f"""
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


@statistic(title="Distributions of request and use per instance", unit="cores, GPUs, GiB", needs=_USED)
def request_and_use(split: Split) -> str:
    """Return the distributions of request and use for each resource: the quantile at every hundredth, for charts.

    The tasks, `use` (mean or peak) and `basis` are those of `over_claim`. `series` is `request` or `used`; `value` is
    the quantile at `probability`, per instance, in the resource's unit.
    """
    points = ", ".join(map(str, PROBABILITIES))
    return f"""
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

_RESOURCES: Final = {
    "cpu": ("req_cpu_cores", "used_cpu_cores"),
    "gpu": ("req_gpus", "used_gpus"),
    "mem": ("req_mem_gib", "mem_avg_gib", "mem_max_gib"),
    "gpu_mem": ("gpu_mem_avg_gib", "gpu_mem_max_gib"),
    "net": ("net_read_bytes_per_s", "net_write_bytes_per_s"),
}


@statistic(title="Use per instance", unit="cores, GPUs, GiB, bytes/s", needs={"usage": ()})
def use(split: Split) -> str:
    """Return the use of measured tasks per instance: mean and percentiles over tasks, one row for each measure.

    The name of a measure ends in its unit. Every measured task counts once, also parameter servers.
    """
    cells = ", ".join(f"{{'measure': '{name}', 'value': {name}}}" for name in MEASURES)
    return f"""
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


@statistic(title="Resources with a request or a use", unit="kinds", needs={"jobs": ()})
def resources_told(split: Split) -> str:
    """Return for which resources (CPU, GPU, memory, GPU memory, network) any job has a request or a measured use."""
    told = ", ".join(
        f"coalesce(bool_or({' OR '.join(f'{column} IS NOT NULL' for column in columns)}), false) AS {kind}"
        for kind, columns in _RESOURCES.items()
    )
    kinds = " + ".join(f"CAST({kind} AS BIGINT)" for kind in _RESOURCES)
    return f"""
    WITH {JOB_ROWS}, part AS (
        SELECT {split.defined}{told}
        FROM job LEFT JOIN usage USING (trace, cluster, job_id, role) GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}{kinds} AS kinds, {", ".join(_RESOURCES)} FROM part ORDER BY ALL
    """

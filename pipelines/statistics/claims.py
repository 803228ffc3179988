"""What jobs ask for against what they use: `over_claim`, `over_claim_as_published`, `request_and_use`.

Each is one SELECT over the claims of `pipelines.lake.views`; what a claim should be instead is
`pipelines.rightsizing.claims`'s. Called through `pipelines.statistics`.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import CLAIM_CELLS, CLAIMS_MEASURED, IS_CLAIM, SLACK, total
from pipelines.statistics.question import JOB_DIMENSIONS, JOB_ROWS, By, Split, ask, mean

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

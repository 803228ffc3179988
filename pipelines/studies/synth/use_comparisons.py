"""Comparisons of use with published statistics: use of workers, use over request, correlations, spread in groups.

Jobs are compared in `job_comparisons`. Called by `pipelines.studies.synth.report` and the tests.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.synth.comparison import (
    QUANTILES,
    Comparison,
    Pair,
    Tables,
    joined_rows,
    labels,
    numbers,
    published_values,
    quantiles,
)
from pipelines.synth.calibration import Calibration


def _use_by_tag(calibration: Calibration, tables: Tables) -> Comparison:
    rows = joined_rows(tables)
    pairs = [
        Pair(
            name=f"{tag}: {name}",
            published=published_values(calibration.use_curves[tag][name]),
            synthetic=quantiles(numbers(rows.filter(pl.col("workload") == tag), name), QUANTILES),
        )
        for tag in calibration.published.tags
        for name in calibration.use.names
    ]
    note = "Per measured GPU worker: % of a core, % of a GPU, GB, bytes, counts."
    return Comparison(title="Use by workload", columns=labels(QUANTILES), pairs=tuple(pairs), note=note)


def _use_over_request(calibration: Calibration, tables: Tables) -> Comparison:
    known = calibration.published.use_over_request
    mine = tables.sensor.join(
        tables.task.filter(
            pl.col("status") == "Terminated", pl.col("workload").is_not_null(), pl.col("plan_gpu").is_not_null()
        ),
        on=["job_name", "task_name"],
    )
    pairs = []
    for (name, used, asked), over in zip(
        (("cpu", "cpu_usage", "plan_cpu"), ("mem", "avg_mem", "plan_mem"), ("gpu", "gpu_wrk_util", "plan_gpu")),
        known["over"],
        strict=True,
    ):
        ratio = numbers(mine.with_columns(ratio=pl.col(used) / pl.col(asked)), "ratio")
        found = (*quantiles(ratio, known["at"]), float((ratio > 1).mean()) if len(ratio) else float("nan"))
        pairs.append(Pair(name=name, published=(*known[name], over), synthetic=found))
    columns = (*labels(known["at"]), "share over 1")
    note = "Tagged, Terminated, GPU workers; memory by its average, as published."
    return Comparison(title="Use over request", columns=columns, pairs=tuple(pairs), note=note)


def _task_sums(calibration: Calibration, tables: Tables) -> Comparison:
    known, below = calibration.published.task_sums, calibration.published.use_over_request["tasks_below"]
    asked = tables.task.select("job_name", "task_name", "inst_num", "plan_cpu", "plan_gpu")
    worker = tables.sensor.group_by("job_name", "task_name", "worker_name").agg(
        cpu=pl.col("cpu_usage").max(), gpu=pl.col("gpu_wrk_util").sum()
    )
    task = (
        worker.group_by("job_name", "task_name")
        .agg(pl.col("cpu").mean(), pl.col("gpu").mean())
        .join(asked, on=["job_name", "task_name"])
    )
    gpu_tasks = task.filter(pl.col("plan_gpu").is_not_null())
    pairs = []
    for name, rows, share in (("cpu", task, below[0]), ("gpu", gpu_tasks, below[1])):
        sums = numbers(rows.with_columns(total=pl.col(name) * pl.col("inst_num")), "total")
        less = float(np.mean((rows[name] < rows[f"plan_{name}"]).to_numpy()))
        pairs.append(Pair(name=name, published=(*known[name], share), synthetic=(*quantiles(sums, known["at"]), less)))
    note = "Mean of the measured workers times instances. The published GPU curve starts at its axis, 3.2."
    columns = (*labels(known["at"]), "share below request")
    return Comparison(title="Use summed over a task (%)", columns=columns, pairs=tuple(pairs), note=note)


def _failed_use(calibration: Calibration, tables: Tables) -> Comparison:
    at, failed = (0.50, 0.75, 0.95, 0.99), tables.task.filter(pl.col("status") == "Failed")
    rows = tables.sensor.join(failed.select("job_name", "task_name"), on=["job_name", "task_name"], how="semi")
    pairs = [
        Pair(
            name=name,
            published=tuple(published_values(calibration.use_curves["failed"][name])[i] for i in (2, 3, 5, 6)),
            synthetic=quantiles(numbers(rows, name), at),
        )
        for name in ("gpu_wrk_util", "cpu_usage", "max_mem", "max_gpu_wrk_mem")
    ]
    return Comparison(title="Use of failed tasks' workers", columns=labels(at), pairs=tuple(pairs))


def _correlations(calibration: Calibration, tables: Tables) -> Comparison:
    rows = joined_rows(tables).filter(pl.col("workload").is_in(list(calibration.published.tags)))
    names = ("run_s", "inst_num", *calibration.use.names)
    ranks = np.column_stack([numbers(rows.select(pl.col(n).rank()), n) for n in names])
    found = np.atleast_2d(np.corrcoef(ranks, rowvar=False))
    pairs = [
        Pair(
            name=f"{names[i]} and {names[j]}",
            published=(calibration.use.correlations[i][j],),
            synthetic=(float(found[i, j]),),
        )
        for i in range(len(names))
        for j in range(i)
    ]
    note = "Pooled over ctr, bert, inception and graphlearn. Their mix among the measured rows moves these."
    return Comparison(title="Rank correlations", columns=("Spearman",), pairs=tuple(pairs), note=note)


def _repeats(calibration: Calibration, tables: Tables) -> Comparison:
    """Compare how much runs of one group differ; as in the published statistic, only tagged Terminated jobs count."""
    done = tables.task.filter(
        pl.col("status") == "Terminated", pl.col("workload").is_not_null(), pl.col("run_s") > 0
    ).unique("job_name", keep="first", maintain_order=True)
    done = done.with_columns(log_run=pl.col("run_s").log10())
    workers = (
        tables.sensor.filter(pl.col("gpu_wrk_util").is_not_null())
        .group_by("job_name")
        .agg(pl.col("max_mem").mean(), pl.col("gpu_wrk_util").mean())
    )
    used = done.join(workers, on="job_name")
    found = {
        "run_time_sd": float(np.std(numbers(done, "log_run"))),
        "after_group_sd": _spread_within(_recurring(done), "group"),
        "after_user_sd": _spread_within(done, "user"),
        "group_cv_run_time": _variation_within(_recurring(done), "run_s"),
        "group_cv_max_mem": _variation_within(_recurring(used), "max_mem"),
        "group_cv_gpu_wrk_util": _variation_within(_recurring(used), "gpu_wrk_util"),
    }
    known = calibration.published.spread
    pairs = [Pair(name=name, published=(known[name],), synthetic=(value,)) for name, value in found.items()]
    note = "log10 run time of tagged Terminated jobs; CV: medians over groups of at least three jobs."
    return Comparison(title="Spread within groups", columns=("value",), pairs=tuple(pairs), note=note)


def _recurring(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.len().over("group") >= 3)


def _spread_within(rows: pl.DataFrame, key: str) -> float:
    left = rows.select(pl.col("log_run") - pl.col("log_run").mean().over(key))
    return float(np.std(numbers(left, "log_run")))


def _variation_within(rows: pl.DataFrame, column: str) -> float:
    grouped = rows.group_by("group").agg(cv=pl.col(column).std() / pl.col(column).mean())
    return float(np.nanmedian(numbers(grouped, "cv")))


def _machines(calibration: Calibration, tables: Tables) -> Comparison:
    known = calibration.published.machine
    rows = tables.metric.join(tables.machine, on="machine").filter(pl.col("cap_gpu") > 0)
    rows = rows.with_columns(gpu_util_per_gpu=pl.col("machine_gpu") / pl.col("cap_gpu"))
    pairs = [
        Pair(name=name, published=known[name], synthetic=quantiles(numbers(rows, name), known["at"]))
        for name in ("gpu_util_per_gpu", "machine_cpu")
    ]
    return Comparison(title="Machine metrics (%)", columns=labels(known["at"]), pairs=tuple(pairs))


USE_COMPARISONS: Final[tuple[Callable[[Calibration, Tables], Comparison], ...]] = (
    _use_by_tag, _use_over_request, _task_sums, _failed_use, _correlations, _repeats, _machines,
)  # fmt: skip
"""All comparisons of use, in the order of the report."""

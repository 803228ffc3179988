"""Comparisons of jobs with published statistics: counts, statuses, run times, waits, requests, gangs and arrivals.

Use is compared in `use_comparisons`. Called by `pipelines.studies.synth.report` and the tests.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl
from scipy.special import ndtri

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
    shares_of,
)
from pipelines.synth.calibration import Calibration
from pipelines.synth.random_numbers import Noise


def _sizes(calibration: Calibration, tables: Tables) -> Comparison:
    full, tasks = calibration.trace, tables.task.height
    found = {
        "jobs": (full.jobs, tables.job.height),
        "instances": (full.instances, tables.instances),
        "sensor rows": (full.sensor_rows, tables.sensor.height),
        "machine metric rows": (full.metric_rows, tables.metric.height),
    }
    pairs = [Pair(name=k, published=(a / full.tasks,), synthetic=(b / tasks,)) for k, (a, b) in found.items()]
    note = "Heavy-tailed gangs make instances per task vary from seed to seed."
    return Comparison(title="Rows per task", columns=("rows",), pairs=tuple(pairs), note=note)


def _job_status(calibration: Calibration, tables: Tables) -> Comparison:
    law = calibration.outcomes
    published = {"Failed": law.failed, "Running": law.running, "Waiting": law.waiting}
    return shares_of("Jobs by status", {"Terminated": 1.0 - sum(published.values()), **published}, tables.job["status"])


def _task_status(calibration: Calibration, tables: Tables) -> Comparison:
    return shares_of("Tasks by status", calibration.published.task_status, tables.task["status"])


def _tags(calibration: Calibration, tables: Tables) -> Comparison:
    counts: dict[str, float] = {}
    for each in calibration.classes:
        counts[each.tag] = counts.get(each.tag, 0.0) + each.jobs
    jobs = tables.task.unique("job_name")
    return shares_of("Jobs by workload tag", counts, jobs["workload"], "Raised here if the trace was made so.")


def _run_time(calibration: Calibration, tables: Tables) -> Comparison:
    known = calibration.published.run_time
    ended = tables.task.filter(pl.col("status").is_in(["Terminated", "Failed"]))
    pairs = [
        Pair(
            name="Terminated GPU tasks",
            published=known["terminated"],
            synthetic=quantiles(numbers(tables.finished, "run_s"), known["terminated_at"]),
        ),
        Pair(
            name="all ended tasks",
            published=known["all"],
            synthetic=quantiles(numbers(ended, "run_s"), known["all_at"]),
        ),
    ]
    note = "Published: end minus start of the task (all tasks: digitised); synthetic: the wait is left out."
    return Comparison(title="Run time (s)", columns=labels(known["all_at"]), pairs=tuple(pairs), note=note)


def _run_time_by_tag(calibration: Calibration, tables: Tables) -> Comparison:
    rows, curves = joined_rows(tables), calibration.run_time_curves
    pairs = [
        Pair(
            name=tag,
            published=published_values(curves[tag]),
            synthetic=quantiles(numbers(rows.filter(pl.col("workload") == tag), "run_s"), QUANTILES),
            origin="published" if tag in calibration.published.tags else "chosen",
        )
        for tag in dict.fromkeys(c.tag for c in calibration.classes if c.tag)
    ]
    note = "Rows: Terminated tasks times measured GPU workers of their job, as published. Chosen: at most a median is."
    return Comparison(title="Run time by workload (s)", columns=labels(QUANTILES), pairs=tuple(pairs), note=note)


def _run_time_by_role(calibration: Calibration, tables: Tables) -> Comparison:
    at, rows = (0.25, 0.50, 0.75, 0.95), tables.finished
    pairs = [
        Pair(
            name=role,
            published=tuple(published_values(calibration.run_time_curves[role])[i] for i in (1, 2, 3, 5)),
            synthetic=quantiles(numbers(rows.filter(pl.col("task_name") == role), "run_s"), at),
        )
        for role in calibration.published.roles
    ]
    return Comparison(title="Run time by role (s)", columns=labels(at), pairs=tuple(pairs))


def _run_time_by_gpus(calibration: Calibration, tables: Tables) -> Comparison:
    at, rows = (0.25, 0.50, 0.75, 0.95), tables.finished
    per_instance = (pl.col("plan_gpu") / 100).round().clip(1)
    rows = rows.with_columns(gpus=pl.col("inst_num") * per_instance)
    pairs = []
    for low, high, share, *published in calibration.published.run_time["by_gpus"]:
        mine = rows.filter(pl.col("gpus").is_between(low, high))
        found = (mine.height / rows.height, *quantiles(numbers(mine, "run_s"), at))
        name = f"{low}" if low == high else f"{low} to {high}" if high < 100_000 else f"{low} and more"
        pairs.append(Pair(name=name, published=(share, *published), synthetic=found))
    return Comparison(title="Run time by GPUs of the task (s)", columns=("share", *labels(at)), pairs=tuple(pairs))


def _waits(calibration: Calibration, tables: Tables) -> Comparison:
    at = (0.50, 0.75, 0.90, 0.95)
    pairs = [
        Pair(
            name=name,
            published=tuple(np.exp(np.interp(ndtri(np.asarray(at)), curve.scores, curve.logs)).tolist()),
            synthetic=quantiles(numbers(tables.task.filter(pl.col("gpu_type") == name), "wait_s"), at),
        )
        for name, curve in calibration.waits.items()
    ]
    return Comparison(title="Wait from task to first instance (s)", columns=labels(at), pairs=tuple(pairs))


def _plan_gpu(calibration: Calibration, tables: Tables) -> Comparison:
    published = calibration.published.plan_gpu
    shares = {value: count / calibration.trace.tasks for value, count in published.items()}
    return shares_of("Tasks by plan_gpu (% of a GPU)", shares, tables.task["plan_gpu"])


def _gpu_type(calibration: Calibration, tables: Tables) -> Comparison:
    return shares_of("Tasks by gpu_type", calibration.published.gpu_type, tables.task["gpu_type"].drop_nulls())


def _plan_cpu(calibration: Calibration, tables: Tables) -> Comparison:
    note = "The published shares come from 500 random tasks."
    return shares_of("Tasks by plan_cpu (% of a core)", calibration.published.plan_cpu, tables.task["plan_cpu"], note)


def _plan_mem(calibration: Calibration, tables: Tables) -> Comparison:
    note = "The published shares come from 500 random tasks."
    return shares_of("Tasks by plan_mem (GB)", calibration.published.plan_mem, tables.task["plan_mem"], note)


def _roles(calibration: Calibration, tables: Tables) -> Comparison:
    return shares_of("Terminated GPU tasks by role", calibration.published.role, tables.finished["task_name"])


def _gangs(calibration: Calibration, tables: Tables) -> Comparison:
    known, sizes = calibration.published.gangs, numbers(tables.task, "inst_num")
    single = Pair(name="tasks of one instance", published=(known["single"],), synthetic=(float((sizes == 1).mean()),))
    above = [
        Pair(
            name=f"instances in tasks of more than {n}",
            published=(share,),
            synthetic=(float(sizes[sizes > int(n)].sum() / sizes.sum()),),
        )
        for n, share in known["more_than"].items()
    ]
    return Comparison(title="Gang sizes", columns=("share",), pairs=(single, *above))


def _group_sizes(calibration: Calibration, tables: Tables) -> Comparison:
    sizes = tables.task.unique("job_name").group_by("group").len()["len"].to_numpy().astype(np.float64)
    per_user = tables.task.group_by("user").len()["len"].to_numpy().astype(np.float64)
    law = calibration.users
    pairs = (
        Pair(name="jobs per group, p50", published=(1.0,), synthetic=(float(np.median(sizes)),)),
        Pair(
            name="largest group over all jobs",
            published=(calibration.groups.largest / calibration.trace.jobs,),
            synthetic=(float(sizes.max() / sizes.sum()),),
        ),
        *(
            Pair(
                name=f"tasks per user, {label} over p50",
                published=(value / law.tasks[1],),
                synthetic=(float(np.quantile(per_user, p) / np.median(per_user)),),
            )
            for label, p, value in zip(labels(law.at), law.at, law.tasks, strict=True)
        ),
    )
    note = "A small trace has fewer users, each with fewer tasks: only the shape can be held against the full one."
    return Comparison(title="Groups and users", columns=("value",), pairs=pairs, note=note)


def _hours(calibration: Calibration, tables: Tables) -> Comparison:
    local = tables.task["start_time"].to_numpy() + calibration.trace.utc_offset_s
    found = np.bincount((local // 3600 % 24).astype(np.int64), minlength=24) / len(local)
    published = np.asarray(calibration.arrivals.hours) / sum(calibration.arrivals.hours)
    pairs = [Pair(name=f"{h} h", published=(float(published[h]),), synthetic=(float(found[h]),)) for h in range(24)]
    return Comparison(title="Starts by hour of day", columns=("share",), pairs=tuple(pairs))


def _gaps(calibration: Calibration, tables: Tables) -> Comparison:
    known = calibration.published.gaps
    starts = np.sort(numbers(tables.finished, "start_time"))
    days = (starts[-1] - starts[0]) / 86_400
    # The published gaps are from a random sample of tasks, so sample a denser trace to the same tasks per day.
    kept = Noise(seed=0).uniform("thin", np.arange(len(starts))) * len(starts) < known["tasks_per_day"] * days
    gaps = np.diff(starts[kept])
    scale = float(gaps.mean()) * known["tasks_per_day"] / 86_400
    found = (*(float(q) / scale for q in quantiles(gaps, known["at"])), float(gaps.std() / gaps.mean()))
    note = "Scaled to the published mean gap; a trace with fewer tasks a day than the sample has smoother gaps."
    columns = (*labels(known["at"]), "CV")
    pair = Pair(name="Terminated GPU tasks", published=(*known["seconds"], known["cv"]), synthetic=found)
    return Comparison(title="Gaps between starts (s)", columns=columns, pairs=(pair,), note=note)


JOB_COMPARISONS: Final[tuple[Callable[[Calibration, Tables], Comparison], ...]] = (
    _sizes, _job_status, _task_status, _tags, _run_time, _run_time_by_tag, _run_time_by_role, _run_time_by_gpus,
    _waits, _plan_gpu, _gpu_type, _plan_cpu, _plan_mem, _roles, _gangs, _group_sizes, _hours, _gaps,
)  # fmt: skip
"""All comparisons of jobs, in the order of the report."""

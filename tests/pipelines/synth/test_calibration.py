"""The synthetic trace against what is published: every tolerance is one that a broken generator breaks."""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from pipelines.synth.calibration import Calibration, load_calibration
from tests.pipelines.synth.trace_tables import Tables, numbers, published_values

TAGS = ["ctr", "bert", "inception"]
QUANTILES = (0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)


@pytest.fixture(scope="module")
def known() -> Calibration:
    return load_calibration()


@pytest.mark.parametrize("which", ["terminated", "all"])
def test_run_times_lie_within_a_third_of_the_published(known: Calibration, tables: Tables, which: str):
    law = known.published.run_time
    ended = tables.task.filter(pl.col("status").is_in(["Terminated", "Failed"]))
    rows = tables.finished if which == "terminated" else ended

    found = np.quantile(numbers(rows, "run_s"), law[f"{which}_at"]) / law[which]
    assert ((found > 0.67) & (found < 1.5)).all(), found


@pytest.mark.parametrize("tag", TAGS)
def test_run_times_of_a_workload_follow_its_quantiles(known: Calibration, tables: Tables, tag: str):
    rows = tables.tagged.filter(pl.col("workload") == tag)

    found = np.quantile(numbers(rows, "run_s"), QUANTILES) / published_values(known.run_time_curves[tag])
    assert ((found > 0.6) & (found < 1.7))[1:6].all(), found


def test_larger_gangs_run_longer(tables: Tables):
    gpus = pl.col("inst_num") * (pl.col("plan_gpu") / 100).round().clip(1)
    of_gpus = tables.finished.with_columns(gpus=gpus)
    one, many = (of_gpus.filter(pl.col("gpus").is_between(*ends))["run_s"].median() for ends in ((1, 1), (17, 64)))

    assert 1.5 < many / one < 12


def test_shares_are_the_published_ones(known: Calibration, tables: Tables):
    law, said, task = known.outcomes, known.published, tables.task
    status = {"Failed": law.failed, "Running": law.running, "Waiting": law.waiting}
    tags: dict[str, float] = {}
    for each in known.classes:
        tags[each.tag] = tags.get(each.tag, 0.0) + each.jobs
    plan_gpu = {value: count / known.trace.tasks for value, count in said.plan_gpu.items()}
    hours = {str(hour): share for hour, share in enumerate(known.arrivals.hours)}
    local = (task["start_time"] + known.trace.utc_offset_s) // 3600 % 24
    cases: list[tuple[Mapping[str, float], pl.Series, float]] = [
        ({"Terminated": 1.0 - sum(status.values()), **status}, tables.job["status"], 0.01),
        (said.task_status, task["status"], 0.03),
        (tags, task.unique("job_name")["workload"], 0.02),
        (plan_gpu, task["plan_gpu"], 0.08),
        (said.gpu_type, task["gpu_type"].drop_nulls(), 0.08),
        (said.plan_cpu, task["plan_cpu"], 0.10),
        (said.plan_mem, task["plan_mem"], 0.10),
        (said.role, tables.finished["task_name"], 0.04),
        (hours, local.cast(pl.Int64), 0.02),
    ]
    for published, column, tolerance in cases:
        texts, total = column.cast(pl.String).fill_null(""), max(1.0, sum(published.values()))
        for value, count in published.items():
            assert (texts == value).mean() == pytest.approx(count / total, abs=tolerance), (column.name, value)


@pytest.mark.parametrize("tag", TAGS)
def test_use_follows_the_published_quantiles(known: Calibration, tables: Tables, tag: str):
    rows = tables.tagged.filter(pl.col("workload") == tag)

    assert len(known.use.names) == 10
    for name in known.use.names:
        found = np.quantile(numbers(rows, name), QUANTILES)
        published = published_values(known.use_curves[tag][name])
        assert found[1:5] == pytest.approx(published[1:5], rel=0.45, abs=1e-3), name


def test_failed_workers_hardly_use_their_gpus(tables: Tables):
    failed = tables.task.filter(pl.col("status") == "Failed").select("job_name", "task_name")
    rows = tables.sensor.join(failed, on=["job_name", "task_name"], how="semi")

    assert np.median(numbers(rows, "gpu_wrk_util")) < 0.05


@pytest.mark.parametrize(
    ("used", "request_", "low", "high"),
    [
        ("cpu_usage", "plan_cpu", 0.15, 0.5),
        ("avg_mem", "plan_mem", 0.1, 0.45),
        ("gpu_wrk_util", "plan_gpu", 0.01, 0.12),
    ],
)
def test_some_use_more_than_they_requested(tables: Tables, used: str, request_: str, low: float, high: float):
    tagged = tables.finished.filter(pl.col("workload").is_not_null())
    rows = tables.sensor.join(tagged, on=["job_name", "task_name"])

    assert low < (rows[used] / rows[request_] > 1).drop_nulls().mean() < high


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("max_mem", "avg_mem"),
        ("max_gpu_wrk_mem", "avg_gpu_wrk_mem"),
        ("write_count", "read_count"),
        ("read", "cpu_usage"),
    ],
)
def test_strong_correlations_are_there(known: Calibration, tables: Tables, first: str, second: str):
    names = ("run_s", "inst_num", *known.use.names)
    rows = tables.tagged.filter(pl.col("workload").is_in(list(known.published.tags)))

    found = rows.select(pl.corr(first, second, method="spearman")).item()
    assert found == pytest.approx(known.use.correlations[names.index(first)][names.index(second)], abs=0.2)


def test_runs_of_a_group_are_alike_as_published(tables: Tables):
    done = tables.task.filter(
        pl.col("status") == "Terminated", pl.col("workload").is_not_null(), pl.col("run_s") > 0
    ).unique("job_name", keep="first", maintain_order=True)
    done = done.with_columns(log_run=pl.col("run_s").log10())
    gpu_workers = tables.sensor.filter(pl.col("gpu_wrk_util").is_not_null())
    used = done.join(gpu_workers.group_by("job_name").agg(pl.col("max_mem", "gpu_wrk_util").mean()), on="job_name")

    def left_after(key: str, rows: pl.DataFrame = done) -> float:
        return rows.select((pl.col("log_run") - pl.col("log_run").mean().over(key)).std(ddof=0)).item()

    def variation(column: str) -> float:
        groups = used.filter(pl.len().over("group") >= 3).group_by("group")
        return groups.agg(cv=pl.col(column).std() / pl.col(column).mean())["cv"].fill_nan(None).median()

    recurring = done.filter(pl.len().over("group") >= 3)
    assert done["log_run"].std(ddof=0) == pytest.approx(0.91, abs=0.12)
    assert 0.25 < left_after("group", recurring) < 0.6
    assert left_after("group", recurring) < left_after("user") < done["log_run"].std(ddof=0)
    assert 0.15 < variation("run_s") < 0.6
    assert variation("max_mem") < 0.08
    assert variation("gpu_wrk_util") > 3 * variation("max_mem")


def test_most_groups_hold_one_job(tables: Tables):
    assert tables.task.unique("job_name").group_by("group").len()["len"].median() == 1.0


@pytest.mark.parametrize("which", ["jobs", "instances", "sensor_rows", "metric_rows"])
def test_rows_per_task_are_near_the_published(known: Calibration, tables: Tables, which: str):
    found = {
        "jobs": tables.job.height,
        "instances": tables.instances,
        "sensor_rows": tables.sensor.height,
        "metric_rows": tables.metric.height,
    }[which]
    published = getattr(known.trace, which) / known.trace.tasks

    assert 0.6 < found / tables.task.height / published < 1.6

"""The way of the PAI trace's official notebook: read all tables, join them to tasks and workers, group, and answer.

Its steps one by one, in pandas as installed; nothing of ours is imported.
"""

from pathlib import Path
from typing import Final

import pandas as pd

TASK: Final = ["job_name", "task_name"]
TABLES: Final = (
    *("job_table", "task_table", "instance_table", "sensor_table", "group_tag_table", "machine_spec"),
    "machine_metric",
)
ASKED: Final = (("cpu", "cpu_usage"), ("gpu", "gpu_wrk_util"), ("mem", "avg_mem"))


def over_claims(folder: Path) -> list[float]:
    """Return the share of measured tasks that ask for more than they use, of CPU, GPU and memory."""
    read = {name: _read(folder, name) for name in TABLES}
    tasks = _tasks(read)
    workers = _workers(read)
    measured = workers.merge(read["machine_spec"].drop(columns="gpu_type"), on="machine", how="left")
    sensor = read["sensor_table"].drop(columns=["job_name", "task_name", "inst_id", "machine"])
    measured = measured.merge(sensor, on="worker_name")
    sums = [f"plan_{kind}" for kind, _ in ASKED] + [used for _, used in ASKED] + ["avg_gpu_wrk_mem"]
    used = measured.groupby(TASK)[[*sums, "cap_cpu", "cap_gpu", "cap_mem"]].sum()
    joined = tasks.drop(columns=[f"plan_{kind}" for kind, _ in ASKED]).merge(used, on=TASK)
    return [float((joined[f"plan_{kind}"] > joined[used]).mean()) for kind, used in ASKED]


def _read(folder: Path, name: str) -> pd.DataFrame:
    frame = pd.read_csv(folder / f"pai_{name}.csv", header=None)
    frame.columns = pd.read_csv(folder / f"pai_{name}.header").columns
    return frame


def _tasks(read: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Join tasks with their job, what their instances come to, and the job's group."""
    tasks = read["task_table"].merge(read["job_table"], on="job_name", suffixes=("", "_job"))
    tasks["run_time"] = tasks["end_time"] - tasks["start_time"]
    tasks = tasks.merge(_of_instances(read["instance_table"]), on=TASK, suffixes=("", "_instance"))
    tasks["wait"] = tasks["start_time_instance"] - tasks["start_time"]
    tasks["start_date"] = _dates(tasks["start_time"])
    return _grouped(tasks, read["group_tag_table"].drop(columns="user"))


def _of_instances(instances: pd.DataFrame) -> pd.DataFrame:
    ended = instances[(instances["start_time"] > 0) & (instances["end_time"] > 0)]
    ran = ended[TASK].assign(run_time=ended["end_time"] - ended["start_time"])
    folded = instances[[*TASK, "status"]].drop_duplicates().groupby(TASK).max()
    for part in (
        instances[instances["start_time"] > 0].groupby(TASK)[["start_time"]].min(),
        instances[instances["end_time"] > 0].groupby(TASK)[["end_time"]].max(),
        ran.groupby(TASK)[["run_time"]].mean(),
    ):
        folded = folded.merge(part, on=TASK, how="left")
    return folded.reset_index()


def _workers(read: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the last instance of every worker with its task and the job's group."""
    workers = read["instance_table"].sort_values(["status", "start_time", "end_time"])
    workers = workers.drop_duplicates(subset=["worker_name"], keep="last").dropna(subset=["worker_name"])
    workers["run_time"] = workers["end_time"] - workers["start_time"]
    workers["start_date"] = _dates(workers["start_time"])
    workers = workers.merge(read["task_table"], on=TASK, how="left", suffixes=("", "_task"))
    return _grouped(workers, read["group_tag_table"])


def _grouped(rows: pd.DataFrame, tags: pd.DataFrame) -> pd.DataFrame:
    joined = rows.merge(tags, on="inst_id", how="left")
    joined["group"] = joined["group"].fillna(joined["user"])
    return joined


def _dates(seconds: "pd.Series[float]") -> "pd.Series[pd.Timestamp]":
    """Make a local time of each number, one by one as the notebook does."""
    return seconds.apply(pd.Timestamp, unit="s", tz="Asia/Shanghai")

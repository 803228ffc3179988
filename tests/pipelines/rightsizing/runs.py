"""Made-up measured runs, and the right-sizing of their groups."""

from typing import Any

import polars as pl

from features.tables import Jobs, Usage
from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.rightsizing.rows import By, rightsized
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import RESOURCES
from tests.pipelines.lake.canonical import canonical, job_row

Row = dict[str, Any]  # a row mixes texts, numbers and times

POLICY = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)


def run(at: int, used: Row | None = None, **fields: object) -> tuple[Row, Row | None]:
    """Return one hour of two instances that ask for 6 cores, 30 GiB and a whole T4, and what they used."""
    usual = {
        "group": "g",
        "user": "u",
        "role": "worker",
        "task_type": "ctr",
        "gpu_type": "T4",
        "instances": 2,
        "run_s": 3600.0,
        "req_cpu_cores": 6.0,
        "req_mem_gib": 30.0,
        "req_gpus": 1.0,
    }
    job = job_row(at, **{**usual, **fields})
    if used is None:
        return job, None
    key = {name: job[name] for name in ("trace", "cluster", "job_id", "role")}
    measured = {"used_cpu_cores": 1.0, "mem_max_gib": 10.0, "used_gpus": 0.2, "gpu_mem_max_gib": 4.0}
    return job, {**key, **measured, "instances_measured": 1, **used}


def tables(*runs: tuple[Row, Row | None]) -> tuple[pl.DataFrame, pl.DataFrame]:
    usage = [used for _, used in runs if used is not None]
    return canonical([job for job, _ in runs], Jobs), canonical(usage, Usage) if usage else Usage.create_empty()


def sized(*runs: tuple[Row, Row | None], by: By = "group", policy: ShrinkPolicy = POLICY) -> list[Row]:
    return rightsized(*tables(*runs), by, policy).to_dicts()


def told(row: Row, of: str) -> list[Any]:
    return [row[f"{name}{of}"] for name in RESOURCES]

"""Canonical jobs made for the tests of simulations: a few columns given, the others null, checked by the schema."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from features.tables import Jobs, Usage

T0 = datetime(2020, 7, 1, tzinfo=UTC)
KINDS = ("ctr", "nlp", "cv")


def canonical(rows: list[dict[str, Any]], schema: Any) -> pl.DataFrame:  # rows of a table, and its frame schema
    """Return rows as a valid canonical table."""
    empty = schema.create_empty()
    frame = pl.DataFrame(rows, schema_overrides={n: t for n, t in empty.schema.items() if n in rows[0]})
    return schema.validate(pl.concat([empty, frame], how="diagonal"))


def job_row(at: int, **fields: object) -> dict[str, object]:
    """Return one row of the jobs table: job `at`, submitted in minute `at`, completed after ten minutes."""
    submit = T0 + timedelta(minutes=at)
    return {
        "trace": "toy",
        "cluster": "c",
        "job_id": f"j{at:03d}",
        "role": "job",
        "task_type": "other",
        "submit_ts": submit,
        "start_ts": submit,
        "end_ts": submit + timedelta(minutes=10),
        "run_s": 600.0,
        "run_s_censored": False,
        "status": "completed",
        "instances": 1,
        "req_gpus": 1.0,
        "user": None,
        "vc": None,
        "gpu_type": None,
        "priority": None,
        "req_cpu_cores": None,
        "req_mem_gib": None,
    } | fields


def measured_tables(count: int = 30) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return canonical jobs and usage: over-claimed requests, one in ten on a device of unknown memory."""
    rng = np.random.default_rng(8)
    jobs, usage = [], []
    for i in range(count):
        submit = T0 + timedelta(minutes=i)
        run_s = float(rng.lognormal(6.5, 0.8))
        key = {"trace": "toy", "cluster": "c", "job_id": f"j{i:03d}", "role": "worker"}
        jobs.append(
            {
                **key,
                "user": f"u{i % 4}",
                "task_type": KINDS[i % 3],
                "gpu_type": "MISC" if i % 10 == 0 else "T4",
                "submit_ts": submit,
                "start_ts": submit,
                "end_ts": submit + timedelta(seconds=run_s),
                "run_s": run_s,
                "run_s_censored": False,
                "status": "completed",
                "instances": int(rng.integers(1, 9)),
                "req_cpu_cores": 6.0,
                "req_mem_gib": 29.3,
                "req_gpus": float(rng.choice([0.25, 0.5, 1.0])),
            }
        )
        peak_gib = float(rng.uniform(2.0, 6.0))
        usage.append(
            {
                **key,
                "used_cpu_cores": float(rng.uniform(0.5, 3.0)),
                "used_gpus": float(rng.uniform(0.0, 0.2)),
                "mem_avg_gib": peak_gib / 2,
                "mem_max_gib": peak_gib,
                "gpu_mem_avg_gib": 0.5,
                "gpu_mem_max_gib": float(rng.uniform(0.3, 2.0)),
                "instances_measured": 1,
            }
        )
    return canonical(jobs, Jobs), canonical(usage, Usage)


def altered(frame: pl.DataFrame, row: int, **values: object) -> pl.DataFrame:
    """Return the frame with some values of one row replaced."""
    at = pl.int_range(pl.len()) == row
    return frame.with_columns(
        pl.when(at).then(pl.lit(value, dtype=frame.schema[name])).otherwise(name).alias(name)
        for name, value in values.items()
    )

"""Canonical jobs made for the tests of simulations: a few columns given, the others null, checked by the schema."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

T0 = datetime(2020, 7, 1, tzinfo=UTC)


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

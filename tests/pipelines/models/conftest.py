"""A small canonical trace that every training test can learn something from."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.tables import Jobs

T0 = datetime(2021, 3, 1, tzinfo=UTC)

MakeJobs = Callable[..., pl.DataFrame]


def make_jobs(n: int = 600, seed: int = 0, *, span_days: float = 40.0, task_type: str = "ctr") -> pl.DataFrame:
    """Return `n` finished jobs; log run time depends on the group, on the GPUs asked for, and on luck."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 12, n)
    gpus = rng.choice([0.25, 0.5, 1.0, 2.0], n)
    log_run = 6.0 + 0.25 * group + 0.4 * np.log2(gpus) + rng.normal(0.0, 0.35, n)
    submit_s = np.sort(rng.uniform(0, span_days * 86400, n)).round()
    run_s = np.exp(log_run).round()
    wait_s = rng.exponential(60.0, n).round()
    frame = pl.DataFrame(
        {
            "trace": "made",
            "cluster": "made",
            "job_id": [f"j{i:05d}" for i in range(n)],
            "role": "worker",
            "user": [f"u{g % 5}" for g in group],
            "group": [f"g{g}" for g in group],
            "task_type": task_type,
            "workload": task_type,
            "gpu_type": rng.choice(["T4", "V100"], n),
            "submit_ts": [T0 + timedelta(seconds=float(s)) for s in submit_s],
            "start_ts": [T0 + timedelta(seconds=float(s)) for s in submit_s + wait_s],
            "end_ts": [T0 + timedelta(seconds=float(s)) for s in submit_s + wait_s + run_s],
            "queue_s": wait_s,
            "run_s": run_s,
            "run_s_censored": False,
            "status": "completed",
            "instances": rng.choice([1, 1, 1, 4], n),
            "req_cpu_cores": rng.choice([4.0, 6.0, 8.0], n),
            "req_mem_gib": rng.choice([16.0, 29.3, 64.0], n),
            "req_gpus": gpus,
        }
    )
    missing = [c for c in Jobs.column_names() if c not in frame.columns]
    return Jobs.cast(frame.with_columns(pl.lit(None).alias(c) for c in missing))


@pytest.fixture
def jobs() -> pl.DataFrame:
    """Return six hundred jobs over forty days."""
    return make_jobs()


@pytest.fixture
def jobs_maker() -> MakeJobs:
    """Return the function that makes jobs: `make_jobs(n, seed, span_days=, task_type=)`."""
    return make_jobs

"""A tiny pool for the tests of the reclaiming study, as a frame with the columns of the tables jobs and usage."""

import polars as pl

from pipelines.simulation.job_pool import KEYS
from tests.pipelines.studies.shrinking.tiny import tables

FULL = {
    "used_cpu_cores": pl.col("req_cpu_cores"),
    "used_gpus": pl.col("req_gpus"),
    "mem_max_gib": pl.col("req_mem_gib"),
    "gpu_mem_max_gib": 16.0 * pl.col("req_gpus"),
}
"""Use of jobs that use all they request, on devices of 16 GiB."""


def rows(count: int = 40) -> pl.DataFrame:
    """Return measured jobs of all four kinds in turn, of which most use less than they request."""
    jobs, usage = tables(count)
    return jobs.join(usage, on=KEYS)

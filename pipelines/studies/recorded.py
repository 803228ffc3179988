"""Jobs of a trace with run times predicted from earlier months: the recorded jobs of the carbon and cost studies."""

from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import LakeError
from pipelines.studies.replay.sizes import ORACLE, PREDICTED, sizes_of
from pipelines.studies.study import Context

MOST_RUN: Final = timedelta(days=3)
"""Maximum run time; longer jobs are left out, because one would outlast all others of a sample."""

COUNTS: Final = (1, 2, 4, 8, 16)


def recorded_jobs(
    context: Context, name: str, *, seed: int, least: int, most_gpus: int = max(COUNTS)
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Read a trace's jobs, and predict each run time from jobs that ended before its month.

    Return the columns `submit_s, gpus, run_s, predicted, oracle`, by submission, and notes.

    Raises
    ------
    LakeError
        If the trace has fewer than `least` suitable jobs.
    """
    lake, trace = context.lake(), context.trace(name)
    every = lake.table("jobs", trace).collect()
    gpus = (pl.col("req_gpus") * pl.col("instances")).alias("gpus")
    ran = every.filter(pl.col("run_s") > 0.0, ~pl.col("run_s_censored").fill_null(value=True))
    small = ran.filter(gpus.is_in([float(count) for count in COUNTS]))
    kept = small.filter(pl.col("run_s") <= MOST_RUN.total_seconds()).sort("submit_ts", "job_id", maintain_order=True)
    if not len(kept):
        raise LakeError(f"{trace} has no job with {max(COUNTS)} GPUs at most and a run time, expected some")
    sizes = sizes_of(
        kept,
        every,
        [PREDICTED, ORACLE],
        zone=lake.manifest(trace).zone,
        seed=seed,
        nthread=context.threads,
        talk=context.talk,
    )
    frame = kept.select(
        submit_ts="submit_ts",
        submit_s=pl.col("submit_ts").dt.epoch("us") / 1e6,
        gpus=gpus.cast(pl.Int64),
        run_s=pl.col("run_s").cast(pl.Float64),
        **{source: pl.Series(np.maximum(size_s, 1.0)) for source, size_s in sizes.predicted_s.items()},
    ).filter(pl.col("submit_ts") >= sizes.since, pl.col("gpus") <= most_gpus)
    if len(frame) < least:
        raise LakeError(f"{trace} has {len(frame)} jobs that suit, expected {least}; lower --jobs")
    note = (
        f"{trace}: {len(frame)} jobs of {len(every)}, from {sizes.since:%Y-%m-%d} on, with a power of two of GPUs and "
        f"at most {MOST_RUN.days} days; each seed takes some in a row, time between arrivals scaled to the load"
    )
    return frame, (note, *sizes.notes)


def in_a_row(jobs: pl.DataFrame, count: int, rng: np.random.Generator) -> pl.DataFrame:
    """Return consecutive jobs from a random one on."""
    return jobs.slice(int(rng.integers(len(jobs) - count + 1)), count)

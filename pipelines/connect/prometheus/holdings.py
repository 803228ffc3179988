"""Which job held which GPU when: samples of a part of an hour go to the job that ran then.

Where the series name no job, a file is joined by machine and time; where they do, a name may outlive its job.
"""

from pathlib import Path
from typing import Final

import polars as pl

from pipelines.connect.prometheus.dialects import Dialect, Measure
from pipelines.connect.prometheus.readings import HOUR_S, KEY, READING, interval_of, samples_of
from pipelines.connect.prometheus.server import Server
from pipelines.errors import BadUsage

SKEW_S: Final = 5.0
"""Samples this close to the start or end of a job are not counted: clocks differ, and another job may be near."""

AT_ONCE: Final = 16
"""Number of machines whose samples are read in one query."""
JOBS_AT_ONCE: Final = 100
"""Number of jobs whose samples are read in one query."""

REQUIRED: Final = ("job_id", "machine", "gpu")


def read_holdings(path: Path, jobs: pl.DataFrame) -> pl.DataFrame:
    """Read a CSV file with columns `job_id,machine,gpu` and, optionally, `start,end` in Unix seconds.

    Without times, a job (with `job`, `start_s`, `end_s`) holds its GPUs from its start to its end.
    """
    try:
        rows = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadUsage(f"--held {path} cannot be read; expected a CSV file of {','.join(REQUIRED)}") from error
    absent = [name for name in REQUIRED if name not in rows.columns]
    if absent:
        raise BadUsage(f"--held {path} has no column {absent[0]}; expected {','.join(REQUIRED)} and perhaps start,end")
    times = [pl.col(name) if name in rows.columns else pl.lit(None).alias(name) for name in ("start", "end")]
    known = rows.select(*REQUIRED, *(each.cast(pl.Float64, strict=False) for each in times))
    held = known.join(jobs.select("job", "start_s", "end_s"), left_on="job_id", right_on="job", how="inner")
    return held.select(
        job="job_id",
        place="machine",
        device="gpu",
        from_s=pl.coalesce("start", "start_s") + SKEW_S,
        to_s=pl.coalesce("end", "end_s") - SKEW_S,
    ).drop_nulls()


def pieces_in(holdings: pl.DataFrame, hour_s: float) -> pl.DataFrame:
    """Return the pieces of holdings within an hour, sorted."""
    cut = holdings.with_columns(
        from_s=pl.col("from_s").clip(lower_bound=hour_s), to_s=pl.col("to_s").clip(upper_bound=hour_s + HOUR_S)
    )
    return cut.filter(pl.col("from_s") < pl.col("to_s")).unique().sort(pl.all())


def attributed(
    server: Server, dialect: Dialect, match: str, hour_s: float, readings: pl.DataFrame, pieces: pl.DataFrame
) -> pl.DataFrame:
    """Return readings of jobs from those of GPUs: a job that held a GPU for the whole hour gets the GPU's reading.

    If jobs changed within the hour, the GPU's samples are read, and each goes to the jobs that held it then.
    """
    of_gpus = readings.filter(pl.col("measure").is_in(["gpus", "gpu_mem_gib"]))
    whole = pl.col("to_s") - pl.col("from_s") >= HOUR_S
    full = of_gpus.drop("job").join(pieces.filter(whole).select("job", "place", "device"), on=["place", "device"])
    parts = pieces.filter(~whole).join(of_gpus.select("place", "device").unique(), on=["place", "device"])
    places = parts["place"].unique().sort().to_list()
    found = [full.select(*READING)]
    for measure in dialect.measures:
        if measure.name in of_gpus["measure"]:
            for at in range(0, len(places), AT_ONCE):
                some, labels = places[at : at + AT_ONCE], measure.place[0]
                samples = samples_of(server, measure, match, hour_s + HOUR_S, some, labels).drop("job")
                found.append(_of_pieces(samples.join(parts, on=["place", "device"]), measure))
    return pl.concat(found).unique(KEY, keep="first", maintain_order=True).sort(KEY)


def within_runs(
    server: Server, dialect: Dialect, match: str, hour_s: float, readings: pl.DataFrame, ended: pl.DataFrame
) -> pl.DataFrame:
    """Return readings in which GPUs that kept a job's name after its end are read anew, from samples of the run only.

    `ended` has the jobs that ended in the hour: `job`, as readings name it, `from_s` and `to_s`.
    """
    of_gpus = readings.filter(pl.col("measure").is_in(["gpus", "gpu_mem_gib"]))
    ran_s = pl.col("to_s") - pl.max_horizontal("from_s", pl.lit(hour_s))
    stale = of_gpus.join(ended, on="job").filter(pl.col("seconds") > ran_s)  # also by one sample, if it is by chance
    jobs = stale["job"].unique().sort().to_list()
    found = [readings.join(stale, on=KEY, how="anti")]
    for measure in dialect.measures:
        if measure.name in stale["measure"]:
            for at in range(0, len(jobs), JOBS_AT_ONCE):
                names = [job.rsplit("/", 1)[-1] for job in jobs[at : at + JOBS_AT_ONCE]]
                samples = samples_of(server, measure, match, hour_s + HOUR_S, names, measure.job[-1])
                found.append(_of_pieces(samples.join(ended, on="job"), measure))
    return pl.concat(found).unique(KEY, keep="first", maintain_order=True).sort(KEY)


def _of_pieces(samples: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Return readings of the samples between `from_s` and `to_s`."""
    if samples.is_empty():
        return pl.DataFrame(schema=READING)
    interval_s = interval_of(samples.drop("from_s", "to_s"))
    inside = pl.col("at_s").is_between("from_s", "to_s")
    return (
        samples.filter(inside)
        .group_by("job", "place", "device", "kind")
        .agg(total=pl.col("value").sum() * interval_s, seconds=pl.len() * interval_s, peak=pl.col("value").max())
        .select(pl.lit(measure.name).alias("measure"), "job", "place", "device", "kind", "total", "seconds", "peak")
        .cast(READING)
    )

"""Job tables for the tests of features: made by hypothesis, and of real samples."""

from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import strategies as st

from features.tables import Jobs, Usage
from pipelines.lake.lake import Lake

START = datetime(2020, 8, 1, tzinfo=UTC)
SCHEMA = {name: column.dtype for name, column in Jobs.columns().items()}
USAGE_SCHEMA = {name: column.dtype for name, column in Usage.columns().items()}
STATUSES = ["completed", "failed", "cancelled", "timeout", "node_fail", "oom"]


def job(number: int, **known: object) -> dict[str, object]:
    """One canonical job row: what is not said is null, or the plainest value."""
    plain = {
        "trace": "t",
        "cluster": "c",
        "job_id": f"j{number:05d}",
        "role": "job",
        "task_type": "other",
        "run_s_censored": False,
        "status": "completed",
        "instances": 1,
    }
    return {**dict.fromkeys(SCHEMA), **plain, **known}


def table(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@st.composite
def job_tables(draw: st.DrawFn, max_size: int = 40) -> pl.DataFrame:
    """Tables with ties, nulls, unfinished and queued jobs, over few keys and coarse times."""
    rows = []
    for number in range(draw(st.integers(1, max_size))):
        submit = draw(st.integers(0, 40)) * 30
        state = draw(st.sampled_from(["over", "over", "over", "running", "waiting", "cancelled in queue"]))
        start = submit + draw(st.sampled_from([0, 0, 30, 300]))
        run = draw(st.sampled_from([0, 1, 30, 61, 97, 601, 4003]))
        times: dict[str, object] = {"submit_ts": at(submit), "status": "waiting"}
        if state == "over":
            times |= {"start_ts": at(start), "end_ts": at(start + run), "run_s": float(run)}
            times["status"] = draw(st.sampled_from(STATUSES))
        elif state == "running":
            times |= {"start_ts": at(start), "status": "running", "run_s": float(run), "run_s_censored": True}
        elif state == "cancelled in queue":
            times |= {"end_ts": at(start), "status": "cancelled"}
        rows.append(
            job(
                number,
                user=draw(st.sampled_from(["u1", "u2", None])),
                vc=draw(st.sampled_from(["v1", "v2", None])),
                group=draw(st.sampled_from(["g1", None])),
                role=draw(st.sampled_from(["ps", "worker"])),
                cluster=draw(st.sampled_from(["c", "c", "d"])),
                instances=draw(st.integers(1, 3)),
                req_gpus=draw(st.sampled_from([0.3, 1.0, 8.0, None])),
                req_cpu_cores=draw(st.sampled_from([0.0, 6.7, None])),
                **times,
            )
        )
    return table(rows)


def usage_of(jobs: pl.DataFrame) -> pl.DataFrame:
    """Usage of every second job, told from its row number so that it needs no drawing."""
    half = jobs.with_row_index("n").filter(pl.col("n") % 2 == 0)
    n = pl.col("n").cast(pl.Float64)
    return half.select(
        "trace",
        "cluster",
        "job_id",
        "role",
        used_cpu_cores=n,
        used_gpus=n / 10,
        mem_avg_gib=n / 2,
        mem_max_gib=pl.when(pl.col("n") % 4 == 0).then(n * 2),
        gpu_mem_avg_gib=n / 3,
        gpu_mem_max_gib=n / 4,
        net_read_bytes_per_s=n,
        net_write_bytes_per_s=n,
        instances_measured=pl.lit(1, dtype=pl.Int32),
        coverage_frac=pl.lit(None, dtype=pl.Float64),
    )


def truncated(jobs: pl.DataFrame, now: datetime, identity: tuple[str, str]) -> pl.DataFrame:
    """What was known just before the submission of the job `identity` (id, role) at `now`, and that job itself.

    Later submissions are gone; what had not started waits, what had not ended runs.
    """
    itself = (pl.col("job_id") == identity[0]) & (pl.col("role") == identity[1])
    known = jobs.filter((pl.col("submit_ts") < now) | itself)
    started, ended = pl.col("start_ts") < now, pl.col("end_ts") < now
    ended = ended.fill_null(value=False)
    return known.with_columns(
        start_ts=pl.when(started).then(pl.col("start_ts")),
        end_ts=pl.when(ended).then(pl.col("end_ts")),
        run_s=pl.when(ended).then(pl.col("run_s")),
        status=pl.when(ended).then(pl.col("status")).when(started).then(pl.lit("running")).otherwise(pl.lit("waiting")),
    )


def real_jobs(lake: Lake, trace: str) -> pl.DataFrame:
    """Return the jobs of a real sample, of Helios those of Venus, in order of submission."""
    cluster = "Venus" if trace == "helios" else None
    return lake.table("jobs", trace, cluster).collect().sort("submit_ts", "job_id", "role")

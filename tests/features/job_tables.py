"""Job tables for the tests of features: made by hypothesis, and read from real samples."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from hypothesis import strategies as st

from features.tables import Jobs, Usage

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


def philly_rebuilt(traces: Path) -> pl.DataFrame:
    """Read the rebuilt Philly log into canonical jobs; a test's own reading, without ingest's rules."""
    with gzip.open(traces / "philly_rebuilt" / "cluster_job_log.gz", "rt") as file:
        log = json.load(file)
    status = {"Pass": "completed", "Failed": "failed", "Killed": "cancelled"}
    rows = [
        {
            "job_id": entry["jobid"],
            "vc": entry["vc"],
            "status": status[entry["status"]],
            "submit": entry["submitted_time"],
            "start": entry["attempts"][0]["start_time"],
            "end": entry["attempts"][-1]["end_time"],
            "req_gpus": float(sum(len(d["gpus"]) for d in entry["attempts"][-1]["detail"])),
        }
        for entry in log
    ]
    raw = pl.DataFrame(rows).with_columns(trace=pl.lit("philly-rebuilt"), cluster=pl.lit("philly"), role=pl.lit("job"))
    local = {
        f"{c}_ts": pl.col(c).str.to_datetime("%Y-%m-%d %H:%M:%S").dt.replace_time_zone("UTC")
        for c in ("submit", "start", "end")
    }
    return _canonical(raw.with_columns(**local))


def helios_venus(traces: Path) -> pl.DataFrame:
    """Read Helios' Venus log into canonical jobs, likewise."""
    log = pl.read_csv(traces / "helios" / "Venus" / "cluster_log.csv", infer_schema=False)
    local = {
        f"{c}_ts": pl.col(f"{c}_time").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.replace_time_zone("UTC")
        for c in ("submit", "start", "end")
    }
    named = log.select(
        "job_id",
        trace=pl.lit("helios"),
        cluster=pl.lit("Venus"),
        role=pl.lit("job"),
        status=pl.lit("completed"),
        req_gpus=pl.col("gpu_num").cast(pl.Float64),
        **local,
    )
    return _canonical(named)


def _canonical(raw: pl.DataFrame) -> pl.DataFrame:
    run_s = (pl.col("end_ts") - pl.col("start_ts")).dt.total_seconds().cast(pl.Float64)
    known = raw.with_columns(
        run_s=run_s, run_s_censored=pl.lit(value=False), task_type=pl.lit("other"), instances=pl.lit(1)
    )
    absent = [pl.lit(None).alias(c) for c in SCHEMA if c not in known.columns]
    return known.with_columns(absent).select(pl.col(c).cast(dtype) for c, dtype in SCHEMA.items())

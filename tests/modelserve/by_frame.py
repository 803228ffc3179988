"""Predictions by data frames and XGBoost itself, as the models were trained: what the served rows are compared with."""

from collections.abc import Sequence

import polars as pl

from features.references import Referenced, build_referenced
from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.combination import Combination, forecasts_of
from modelserve.bundle.served import calibrated_run_times
from scheduler_core.types import Job, Request, RunTimes

TEXTS = ("trace", "cluster", "job_id", "role", "user", "vc", "group", "workload", "task_type", "gpu_type")
REQUESTS = {"req_cpu_cores": pl.Float64(), "req_mem_gib": pl.Float64(), "req_gpus": pl.Float64()}
COLUMNS = {
    **dict.fromkeys(TEXTS, pl.String()),
    "submit_ts": pl.Datetime("us", "UTC"),
    "instances": pl.Int32(),
    **REQUESTS,
}


def frame_of(jobs: Sequence[Job]) -> pl.DataFrame:
    """Return the canonical columns of jobs, which name their cluster."""
    rows = [
        {
            **{name: getattr(job, name) for name in TEXTS},
            "submit_ts": round(job.submit_ts * 1e6),
            "instances": job.instances,
            **dict(zip(REQUESTS, job.request.row(), strict=True)),
        }
        for job in jobs
    ]
    frame = pl.DataFrame(rows, schema={**COLUMNS, "submit_ts": pl.Int64()})
    submitted = pl.from_epoch("submit_ts", time_unit="us").dt.replace_time_zone("UTC")
    return frame.with_columns(submitted, pl.col(*REQUESTS).fill_nan(None))


def jobs_in(frame: pl.DataFrame) -> list[Job]:
    """Return the jobs of canonical rows."""
    same = ("trace", "cluster", "job_id", "role", "user", "group", "task_type", "workload", "gpu_type", "instances")
    return [
        Job(
            **{name: row[name] for name in same},
            request=Request(cpu_cores=row["req_cpu_cores"], mem_gib=row["req_mem_gib"], gpus=row["req_gpus"]),
            submit_ts=row["submit_ts"].timestamp(),
        )
        for row in frame.to_dicts()
    ]


def features_of(bundle: Bundle, frame: pl.DataFrame) -> Referenced:
    """Return the features of a run-time model."""
    return build_referenced(frame, bundle.history, bundle.contract.names, relative=bundle.card.relative)


def run_times_of(bundle: Bundle, frame: pl.DataFrame) -> RunTimes:
    """Return the run times of canonical rows."""
    built, card = features_of(bundle, frame), bundle.card
    matrix, reference = bundle.contract.encode(built.features), built.reference_log_s
    trees, base = raw_outputs(bundle.boosters["run_s"], matrix), reference
    if card.combination is not None:
        forest = None if bundle.quantile_forest is None else bundle.quantile_forest.rows(matrix) + reference[:, :1]
        forecasts = forecasts_of(
            card.combination.members,
            xgboost=trees + reference,
            forest=forest,
            reference_log_s=reference,
            history_log_s=built.history_log_s,
            typical_s=card.typical_s,
        )
        combined = Combination.of(card.combination, rows=card.rows).combined(forecasts)
        base = reference + (combined - (trees + reference))
    return calibrated_run_times(card, trees, base)

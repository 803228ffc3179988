"""Rows of job tables as the online history takes them: jobs asked about, and runs that ended."""

import numpy as np
import polars as pl

from features.columns.feature import Lookback
from features.columns.recency import extremes_before
from features.contract import FeatureContract
from features.frames import has_ended
from features.history import REQUEST_COLUMNS, USE_COLUMNS, History
from features.online import EndedRun, JobAsked, OnlineHistory
from features.references import Referenced, build_referenced
from features.rows import RowBuilder, Rows
from features.sets import FEATURES, named

NAN = float("nan")


def contract_of(names: str, frame: pl.DataFrame) -> FeatureContract:
    """The contract of a set, with the texts of these jobs as its categories."""
    listed = tuple(named(names))
    features = [FEATURES[name] for name in listed]
    return FeatureContract(
        names=listed,
        categories={
            f.name: tuple(frame[f.name].drop_nulls().unique().sort().to_list()[::2]) for f in features if f.kind == "c"
        },
    )


def jobs_asked(jobs: pl.DataFrame) -> list[JobAsked]:
    """The jobs as they are asked about, at their submission."""
    known = jobs.with_columns(
        pl.col(REQUEST_COLUMNS).cast(pl.Float64).fill_null(NAN), submit_us=pl.col("submit_ts").cast(pl.Int64)
    )
    return [JobAsked(**row) for row in known.select(list(JobAsked.__slots__)).iter_rows(named=True)]


def ended_runs(jobs: pl.DataFrame, usage: pl.DataFrame | None = None) -> list[EndedRun]:
    """Those of the jobs that have ended, as feedback tells them."""
    if usage is None:
        used = jobs.with_columns(measured=pl.lit(value=False))
        used = used.with_columns(pl.lit(None, dtype=pl.Float64).alias(c) for c in USE_COLUMNS)
    else:
        use = usage.select("trace", "cluster", "job_id", "role", *USE_COLUMNS, measured=True)
        used = jobs.join(use, on=("trace", "cluster", "job_id", "role"), how="left", maintain_order="left")
        used = used.with_columns(pl.col("measured").fill_null(value=False))
    numbers = ("run_s", *REQUEST_COLUMNS, *USE_COLUMNS)
    told = used.filter(has_ended()).with_columns(
        pl.col(numbers).cast(pl.Float64).fill_null(NAN),
        *(pl.col(f"{c}_ts").cast(pl.Int64).alias(f"{c}_us") for c in ("submit", "start", "end")),
    )
    return [EndedRun(**row) for row in told.select(list(EndedRun.__slots__)).iter_rows(named=True)]


def check_same(found: Rows, expected: Rows) -> None:
    """Equal to the bit, unknowns included."""
    for name in ("matrix", "reference_log_s", "history_log_s", "evidence", "extremes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)


def rows_online(names: str, jobs: pl.DataFrame, history: OnlineHistory, *, relative: bool = True) -> Rows:
    return RowBuilder.of(contract_of(names, jobs), relative=relative).rows(jobs_asked(jobs), history)


def rows_built(names: str, jobs: pl.DataFrame, history: History, *, relative: bool = True) -> Rows:
    """What training would have made of the same jobs and history."""
    contract = contract_of(names, jobs)
    built = build_referenced(jobs, history, names, relative=relative)
    return rows_of(contract, built, extremes_before(Lookback.of(jobs, history)))


def rows_of(contract: FeatureContract, built: Referenced, extremes: np.ndarray) -> Rows:
    return Rows(
        matrix=contract.encode(built.features),
        reference_log_s=built.reference_log_s,
        history_log_s=built.history_log_s,
        evidence=built.evidence,
        runs=built.evidence[:, 0] * 0,
        extremes=extremes,
    )

"""Speeds of own jobs for `taut plan`, fitted to the history of their groups."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from features.vocabulary import Status
from modelserve.contract.plans import PlanJob
from pipelines.errors import BadUsage
from scheduler_core.planning.speeds import fit_speeds

__all__ = ["with_speeds"]

LEAST_RUN_S: Final = 60.0
"""Shorter runs are left out: most of their time is the start."""
LEAST_RUNS: Final = 5
"""Minimum number of runs of a group with GPUs of a type, or with a count of GPUs, for a speed with them."""
LEAST_GAIN: Final = 0.05
"""Elasticity up to which no other count is offered: more GPUs have made no run of the group faster."""


def with_speeds(jobs: Sequence[PlanJob], history: pl.DataFrame) -> tuple[list[PlanJob], list[str]]:
    """Return the jobs with `speedup` and `speed_on` from earlier runs of their groups (table `jobs`), and their notes.

    A job keeps what it states itself. Speeds are for counts and types that its group has run with.
    """
    runs = _runs(history)
    groups, kinds = (runs[name].unique(maintain_order=True).to_list() for name in ("group", "gpu_type"))
    codes = runs.select(
        group=pl.col("group").replace_strict(groups, range(len(groups)), return_dtype=pl.Int64),
        kind=pl.col("gpu_type").replace_strict(kinds, range(len(kinds)), return_dtype=pl.Int64),
    )
    model = fit_speeds(
        codes["group"].to_numpy(), runs["gpus"].to_numpy(), codes["kind"].to_numpy(), runs["run_s"].to_numpy()
    )
    done, notes = [], []
    for job in jobs:
        own = runs.filter(pl.col("group") == (job.group or ""))
        if own.is_empty():
            done.append(job)
            notes.append(f"{job.job_id}: no run of its group {job.group or '(none)'}, speeds as stated")
            continue
        group = groups.index(job.group)
        elasticity = float(model.elasticity[group])
        counts = [int(count) for count in _often(own, "gpus") if count != job.gpus and float(count).is_integer()]
        scaled = {count: round(model.with_gpus(group, count / job.gpus), 3) for count in sorted(counts)}
        base = job.gpu_type if job.gpu_type in kinds else own["gpu_type"].mode().sort()[0]
        types = sorted(kind for kind in _often(own, "gpu_type") if kind != base)
        on = {kind: round(model.on_type(kinds.index(kind), kinds.index(base)), 3) for kind in types}
        fitted = {"speedup": scaled if elasticity > LEAST_GAIN else {}, "speed_on": on}
        done.append(job.model_copy(update={name: given for name, given in fitted.items() if not getattr(job, name)}))
        notes.append(f"{job.job_id}: {own.height} runs of its group; speed grows as GPUs ^ {elasticity:.2f}")
    return done, notes


def _runs(history: pl.DataFrame) -> pl.DataFrame:
    done = pl.col("status") == Status.COMPLETED
    runs = (
        history.filter(done, pl.col("run_s") >= LEAST_RUN_S, pl.col("group").is_not_null())
        .select("group", pl.col("gpu_type").fill_null(""), "run_s", gpus=pl.col("req_gpus") * pl.col("instances"))
        .filter(pl.col("gpus") > 0)
    )
    if runs.is_empty():
        raise BadUsage("history: found no completed run of a minute with a group and GPUs, expected some to learn from")
    return runs


def _often(runs: pl.DataFrame, column: str) -> list:  # type: ignore[type-arg]  # of the column's type
    counted = runs[column].value_counts().filter(pl.col("count") >= LEAST_RUNS)
    return counted[column].drop_nulls().to_list()

"""Read what `taut plan` decides on: own jobs (JSON lines), nodes (TOML), and speeds from the history of groups.

Fields are those of `modelserve.contract.plans`, the calls of the service.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import polars as pl
from pydantic import BaseModel, ValidationError

from features.vocabulary import Status
from modelserve.bundle.card import complaint
from modelserve.contract.plans import MAX_PLANNED, HoldBody, HoldJob, PlanBody, PlanJob
from pipelines.connect.files import table_in, text_in
from pipelines.errors import BadUsage
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries
from scheduler_core.planning.speeds import fit_speeds

__all__ = ["body_of", "hold_body", "plan_jobs", "with_speeds"]

TRACE: Final = "own"
OF_JOBS: Final = ("jobs", "node", "running_gpus")
"""Fields of the call and of its messages that come from the file of jobs."""
PAST_HOURS: Final = 15 * HOURS_PER_DAY
"""Hours of the past that forecasts may use."""

Row = TypeVar("Row", bound=BaseModel)


def body_of(objective: Literal["carbon", "cost"], jobs: Path, nodes: Path, now: float, **options: Any) -> PlanBody:
    """Read jobs and nodes into a call for a plan at `now` (Unix time); `options` are other fields of the call.

    The power of a node group without its own figures is that of its GPU type in the shipped table.
    """
    table = _nodes_of(nodes)
    given = {"objective": objective, "trace": TRACE, "now_ts": datetime.fromtimestamp(now, UTC), **options}
    both = sorted(table.keys() & {*given, "jobs"})
    if both:
        raise BadUsage(
            f"{nodes}: found {both[0]}, expected nodes, clocks, pue, preempt and restart_s; the rest are options"
        )
    try:
        return PlanBody.model_validate({**table, **given, "jobs": plan_jobs(jobs)})
    except ValidationError as error:
        text = complaint(error)
        field = text.partition(":")[0].partition(".")[0]
        place = "" if field in options else f"{jobs if field in OF_JOBS else nodes}: "
        raise BadUsage(f"{place}{text}") from error


def plan_jobs(path: Path) -> list[PlanJob]:
    """Read the jobs to plan."""
    return _rows(path, PlanJob)


def _nodes_of(path: Path) -> dict[str, Any]:  # TOML holds any type; the call's fields are validated
    table, power = table_in(path, expected="TOML such as [[nodes]] with name, gpu_type and gpus"), power_file()
    groups = table.get("nodes")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise BadUsage(f"{path}: found no [[nodes]], expected one for each group of nodes: name, gpu_type, gpus, count")
    for group in groups:
        kind = str(group.get("gpu_type"))
        if kind in power.gpus:
            group.setdefault("gpu_idle_w", power.gpus[kind].idle_w)
            group.setdefault("gpu_full_w", power.gpus[kind].full_w)
        elif not {"gpu_idle_w", "gpu_full_w"} <= group.keys():
            raise BadUsage(
                f"{path}: found no power of gpu_type {kind[:40]!r}, expected gpu_idle_w and gpu_full_w, or a type of "
                f"the table of powers: {', '.join(sorted(power.gpus))}"
            )
    return table


def hold_body(jobs: Path, series: HourlySeries, by: Literal["carbon", "price"], now: float) -> HoldBody:
    """Read jobs into a call for holds; its hours are those of a series up to `now`, at most the last 15 days."""
    known = series.truncated(now + 1.0)
    values = known.values[-PAST_HOURS:]
    start_s = known.until_s - len(values) * HOUR_S
    hours = {"start_ts": datetime.fromtimestamp(start_s, UTC), "values": tuple(values.tolist())}
    rows = tuple(_rows(jobs, HoldJob))
    try:
        return HoldBody.model_validate({"jobs": rows, "by": by, "hours": hours, "trace": TRACE})
    except ValidationError as error:
        raise BadUsage(f"{jobs}: {complaint(error)}") from error


def _rows(path: Path, kind: type[Row]) -> list[Row]:
    rows = []
    for number, line in enumerate(text_in(path, expected="one JSON object per line").splitlines(), start=1):
        if line.strip():
            try:
                rows.append(kind.model_validate_json(line))
            except ValidationError as error:
                raise BadUsage(f"{path}, line {number}: {complaint(error)}") from error
    if not rows:
        raise BadUsage(f"{path}: found no job, expected one JSON object per line")
    if len(rows) > MAX_PLANNED:
        raise BadUsage(
            f"{path}: found {len(rows)} jobs, expected at most {MAX_PLANNED}; plan parts of the cluster apart"
        )
    return rows


LEAST_RUN_S: Final = 60.0
"""Runs shorter than this (in seconds) are left out, because most of their time is the start."""
LEAST_RUNS: Final = 5
"""Minimum number of a group's runs with a GPU type, or with a GPU count, before its speed is used."""
LEAST_GAIN: Final = 0.05
"""Elasticity up to which no other GPU count is offered, because more GPUs did not make the group's runs faster."""


def with_speeds(jobs: Sequence[PlanJob], history: pl.DataFrame) -> tuple[list[PlanJob], list[str]]:
    """Return the jobs with `speedup` and `speed_on` from earlier runs of their groups (table `jobs`), and their notes.

    Speeds that a job states itself stay. Others are only added for GPU counts and types with which its group has run.
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

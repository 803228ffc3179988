"""Read what `taut plan` decides on: own jobs (JSON lines) and nodes (TOML).

Fields are those of `modelserve.contract.plans`, the calls of the service.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from modelserve.bundle.card import complaint
from modelserve.contract.plans import MAX_PLANNED, HoldBody, HoldJob, PlanBody, PlanJob
from pipelines.connect.files import table_in, text_in
from pipelines.errors import BadUsage
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries

__all__ = ["body_of", "hold_body", "plan_jobs"]

TRACE: Final = "own"
OF_JOBS: Final = ("jobs", "node", "running_gpus")
"""Fields of the call, or of its messages, that the file of jobs gives."""
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
    """Read jobs into a call for holds by the hours of a series that are known at `now`, at most the last 15 days."""
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

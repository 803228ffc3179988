"""Read what `taut plan` decides on: own jobs (JSON lines) and nodes (TOML).

Fields are those of `modelserve.contract.plans`, the calls of the service. Called by `pipelines.cli.planning`.
"""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from modelserve.bundle.card import complaint
from modelserve.contract.holds import HoldBody, HoldJob
from modelserve.contract.plans import PlanBody, PlanJob
from pipelines.errors import BadUsage
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries

__all__ = ["body_of", "hold_body"]

MOST_BYTES: Final = 50_000_000
TRACE: Final = "own"
PAST_HOURS: Final = 7 * HOURS_PER_DAY

Row = TypeVar("Row", bound=BaseModel)


def body_of(objective: Literal["carbon", "cost"], jobs: Path, nodes: Path, now: float, **options: Any) -> PlanBody:
    """Read jobs and nodes into a call for a plan at `now` (Unix time); `options` are other fields of the call.

    The power of a node group without its own figures is that of its GPU type in the shipped table.

    Raises
    ------
    BadUsage
        If a file cannot be read or is invalid; the message names line and field.
    """
    table, power = _toml(nodes), power_file()
    for group in table.get("nodes", []):
        known = power.gpus.get(str(group.get("gpu_type"))) if isinstance(group, dict) else None
        if known is not None:
            group.setdefault("gpu_idle_w", known.idle_w)
            group.setdefault("gpu_full_w", known.full_w)
    fields = {**table, "objective": objective, "trace": TRACE, "now_ts": datetime.fromtimestamp(now, UTC), **options}
    try:
        return PlanBody.model_validate({**fields, "jobs": _rows(jobs, PlanJob)})
    except ValidationError as error:
        raise BadUsage(f"{nodes}: {complaint(error)}") from error


def hold_body(jobs: Path, series: HourlySeries, by: Literal["carbon", "price"], now: float) -> HoldBody:
    """Read jobs into a call for holds by the hours of a series that are known at `now`, at most a week of them.

    Raises
    ------
    BadUsage
        If the file cannot be read or is invalid, or the series has no value of the current hour.
    """
    known = series.truncated(now + 1.0)
    hour = int((now - series.start_s) // HOUR_S)
    if not 0 <= hour < len(series):
        raise BadUsage(
            f"--grid: found no value of {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:00} UTC, expected one; give --at "
            "or a file with that hour"
        )
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
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if line.strip():
            try:
                rows.append(kind.model_validate_json(line))
            except ValidationError as error:
                raise BadUsage(f"{path}, line {number}: {complaint(error)}") from error
    if not rows:
        raise BadUsage(f"{path}: found no job, expected one JSON object per line")
    return rows


def _toml(path: Path) -> dict[str, Any]:  # TOML holds any type; the call's fields are validated
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BadUsage(f"{path}: {error}; expected TOML such as [[nodes]] with name, gpu_type and gpus") from error


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadUsage(f"{path}: found more than {MOST_BYTES} bytes, expected fewer")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a file that can be read") from error

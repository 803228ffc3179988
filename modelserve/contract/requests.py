"""Requests to the service: jobs with their resource requests, and the bodies of all calls, validated when read.

An error names the invalid field. Users, groups, task types and devices that no model knows are valid.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final, Literal, cast

from pydantic import AwareDatetime, BeforeValidator, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticKnownError
from pydantic_core.core_schema import ErrorType

from features.vocabulary import ROLE_WHOLE_JOB, TaskType
from modelserve.bundle.card import Resource, complaint
from modelserve.contract.fields import Guard, Mode, Part, RequestRow, Text
from modelserve.errors import BadRequest
from scheduler_core.shrink import MAX_ALPHA
from scheduler_core.types import Job, Request

__all__ = [
    "MAX_JOBS", "NO_FLOORS", "ExplainBody", "JobIdentity", "JobRow", "ModeBody", "PredictBody", "RecommendBody",
    "RecommendJob", "WhatIfBody", "amounts_of", "job_of", "parse_lines", "request_of",
]  # fmt: skip

MAX_JOBS: Final = 10_000
NO_FLOORS: Final = RequestRow()
"""The `floors` of a call or job without floors."""

_IN_TEXT: Final = TypeAdapter(AwareDatetime)


def _written_out(moment: object) -> object:
    """Parse a date and time; reject text with only a number, which pydantic would read as Unix time.

    The text is parsed here because strict pydantic models do not accept date text from a validator.
    """
    if not isinstance(moment, str):
        return moment
    if moment[4:5] != "-":
        raise PydanticKnownError("datetime_from_date_parsing", {"error": "expected a year of four digits and a dash"})
    try:
        return _IN_TEXT.validate_strings(moment)
    except ValidationError as error:
        fault = error.errors()[0]
        raise PydanticKnownError(cast("ErrorType", fault["type"]), fault.get("ctx")) from None


Output = Literal["run_time", "peak_use"]
OUTPUTS: Final[tuple[Output, ...]] = ("run_time", "peak_use")
TOP: Final = 10
"""Default number of features that an explanation lists."""
POINTS: Final = 20
"""Default number of points of a what-if curve."""

Moment = Annotated[AwareDatetime, BeforeValidator(_written_out)]
"""A date and time with a time zone, in ISO 8601 format."""


class JobIdentity(Part):
    """The identity of a job in a call or report, and the fields that models read."""

    job_id: Text
    task_type: Text = str(TaskType.OTHER)
    trace: Text | None = None
    cluster: Text | None = None
    user: Text | None = None
    group: Text | None = None
    vc: Text | None = None
    role: Text = ROLE_WHOLE_JOB
    workload: Text | None = None
    gpu_type: Text | None = None
    instances: int = Field(default=1, ge=1, le=1_000_000)


class JobRow(JobIdentity):
    """One submitted job; a missing `trace` or `submit_ts` is taken from the call."""

    request: RequestRow
    submit_ts: Moment | None = None
    opted_out: bool = False


class RecommendJob(JobRow):
    """One job, with optional minimum amounts (`floors`) for its recommendation."""

    floors: RequestRow = NO_FLOORS


class PredictBody(Part):
    """A prediction call: jobs, the trace of jobs that name none, and the requested outputs."""

    jobs: Annotated[tuple[JobRow, ...], Field(min_length=1, max_length=MAX_JOBS, fail_fast=True)]
    trace: Text | None = None
    outputs: Annotated[tuple[Output, ...], Field(min_length=1, max_length=len(OUTPUTS))] = OUTPUTS


class RecommendBody(Part):
    """A recommendation call: jobs, the trace of jobs that name none, and limits on shrinking.

    A limit that is absent is taken from the settings for the job's task type. `theta` is the largest accepted relative
    change of the predicted run time, `alpha` the smallest share of a request that is tried. With guard `usage`,
    measured peak use bounds targets from below. If several `floors` apply to a job, the largest is used.
    """

    jobs: Annotated[tuple[RecommendJob, ...], Field(min_length=1, max_length=MAX_JOBS, fail_fast=True)]
    trace: Text | None = None
    theta: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    alpha: Annotated[float, Field(ge=0.0, le=MAX_ALPHA)] | None = None
    guard: Guard | None = None
    floors: RequestRow = NO_FLOORS


class ExplainBody(Part):
    """An explanation call: one job, the run-time quantile to explain, and the number of features to list (`top`)."""

    job: JobRow
    trace: Text | None = None
    top: Annotated[int, Field(ge=1, le=1000)] = TOP
    quantile: Literal["p50", "p90"] = "p50"


class WhatIfBody(Part):
    """A what-if call: one job, the resource to vary, and the number of its values (`points`)."""

    job: JobRow
    resource: Resource
    trace: Text | None = None
    points: Annotated[int, Field(ge=2, le=1000)] = POINTS


class ModeBody(Part):
    """Set a mode, unset a mode, or release brakes; an absent cluster, task type or group means all.

    With a group or user, only its brake is released.
    """

    trace: Text | None = None
    cluster: Text | None = None
    task_type: Text | None = None
    group: Text | None = None
    user: Text | None = None
    mode: Mode | None = None
    unset: Literal[True] | None = Field(default=None, description="take back the mode of this very place")
    reset: Literal[True] | None = Field(
        default=None, description="release the brake of a group, a user or a type, or all"
    )

    @model_validator(mode="after")
    def _one_of_three(self) -> "ModeBody":
        given = [name for name in ("mode", "unset", "reset") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"found {' and '.join(given) or 'none'}, expected one of mode, unset and reset")
        if self.user is not None and (not self.reset or self.group is not None):
            raise ValueError("user: found one, expected it with reset and without a group; modes are of groups")
        return self


_JOB_ROWS: Final = TypeAdapter(list[JobRow])


def parse_lines(lines: Iterable[str]) -> list[JobRow]:
    """Read jobs from lines with one JSON object each, or from one JSON array; empty lines are skipped."""
    rows: list[JobRow] = []
    rest = iter(lines)
    for number, line in enumerate(rest, start=1):
        if not rows and line.lstrip().startswith("["):
            return _parse_array("".join([line, *rest]))
        if not line.strip():
            continue
        try:
            rows.append(JobRow.model_validate_json(line))
        except ValidationError as error:
            raise BadRequest(f"line {number}: {complaint(error)}") from error
    return rows


def _parse_array(text: str) -> list[JobRow]:
    try:
        return _JOB_ROWS.validate_json(text)
    except ValidationError as error:
        raise BadRequest(f"array of jobs, item counted from 0: {complaint(error)}") from error


def job_of(row: JobRow, *, trace: str, submitted: datetime, minimum: Request | None = None) -> Job:
    """Convert a row to a `Job`; `trace` and `submitted` are the trace and submit time if the row names none."""
    return Job(
        job_id=row.job_id,
        trace=row.trace or trace,
        task_type=row.task_type,
        request=request_of(row),
        instances=row.instances,
        cluster=row.cluster,
        role=row.role,
        user=row.user,
        group=row.group,
        vc=row.vc,
        workload=row.workload,
        gpu_type=row.gpu_type,
        submit_ts=(row.submit_ts or submitted).timestamp(),
        opted_out=row.opted_out,
        minimum=minimum,
    )


def request_of(row: JobRow) -> Request:
    """Return the request of one instance; a resource that is not requested is NaN."""
    return amounts_of(row.request)


def amounts_of(row: RequestRow) -> Request:
    """Return the amounts of a row; an absent one is NaN."""
    cpu_cores, mem_gib, gpus = row.cpu_cores, row.mem_gib, row.gpus
    return Request(
        cpu_cores=math.nan if cpu_cores is None else cpu_cores,
        mem_gib=math.nan if mem_gib is None else mem_gib,
        gpus=math.nan if gpus is None else gpus,
    )

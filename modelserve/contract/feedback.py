"""Reports of finished jobs (request, allocation, run time and use), validated when read.

Sent by `modelserve.client`; stored and learnt from by `modelserve.learning.feedback`.
"""

from datetime import UTC, datetime
from typing import Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from modelserve.contract.fields import Amount, Part, Text
from modelserve.contract.requests import MAX_JOBS, JobIdentity, Moment, RequestRow

__all__ = ["EARLIEST", "FeedbackBody", "FeedbackRow"]

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
SLACK_S: Final = 1.0
"""Seconds by which a run time may exceed the time from submission to end, since schedulers round to seconds."""


class UsedRow(Part):
    """Use per instance: mean CPU and GPU use, and the largest peak memory of all instances; null if not measured."""

    cpu_cores: Amount | None = None
    gpus: Amount | None = None
    mem_max_gib: Amount | None = None
    gpu_mem_max_gib: Amount | None = None


class FeedbackRow(JobIdentity):
    """The report of one finished job; `allocation` is what it was given, by default its request."""

    submit_ts: Moment
    start_ts: Moment | None = None
    end_ts: Moment
    run_s: float | None = Field(default=None, ge=0.0, le=1e9, allow_inf_nan=False, validate_default=True)
    outcome: Literal["completed", "failed", "oom", "cancelled", "timeout", "node_fail"]
    request: RequestRow
    allocation: RequestRow | None = None
    used: UsedRow = UsedRow()
    answer_id: Text | None = None

    @field_validator("submit_ts")
    @classmethod
    def _not_before_time(cls, submit: datetime) -> datetime:
        if submit < EARLIEST:
            raise ValueError(f"found {submit.isoformat()}, expected a time after 1970 began")
        return submit

    @field_validator("start_ts")
    @classmethod
    def _starts_after_submission(cls, start: datetime | None, info: ValidationInfo) -> datetime | None:
        submit = info.data.get("submit_ts")
        if start is not None and submit is not None and start < submit:
            raise ValueError(f"found {start.isoformat()}, expected no time before submit_ts")
        return start

    @field_validator("end_ts")
    @classmethod
    def _ends_after_start(cls, end: datetime, info: ValidationInfo) -> datetime:
        for name in ("start_ts", "submit_ts"):
            earlier = info.data.get(name)
            if earlier is not None and end < earlier:
                raise ValueError(f"found {end.isoformat()}, expected no time before {name}")
        return end

    @field_validator("run_s")
    @classmethod
    def _runs_within_its_times(cls, run_s: float | None, info: ValidationInfo) -> float | None:
        submit, end = info.data.get("submit_ts"), info.data.get("end_ts")
        if run_s is None and info.data.get("start_ts") is None:
            raise ValueError("found neither, expected start_ts or run_s")
        if run_s is not None and submit and end and run_s > (end - submit).total_seconds() + SLACK_S:
            raise ValueError(f"found {run_s}, expected at most the seconds from submit_ts to end_ts")
        return run_s


class FeedbackBody(Part):
    """A feedback call: reports of finished jobs, and the trace of jobs that name none."""

    feedback: tuple[FeedbackRow, ...] = Field(min_length=1, max_length=MAX_JOBS, fail_fast=True)
    trace: Text | None = None

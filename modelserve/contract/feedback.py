"""Reports of finished jobs, and answers about what they taught: modes and their effect, and drift.

Sent and read by `modelserve.client`; stored, learnt from and answered by `modelserve.learning`.
"""

from datetime import UTC, datetime
from typing import Final, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from modelserve.contract.fields import Amount, Answer, Finite, Kind, Mode, Part, RequestRow, Text
from modelserve.contract.requests import MAX_JOBS, JobIdentity, Moment

__all__ = [
    "EARLIEST", "BrakeHeld", "Coverage", "DriftAnswer", "Error", "FeedbackAnswer", "FeedbackBody",
    "FeedbackResult", "FeedbackRow", "Hours", "ModeAnswer", "ModeChange", "ModeHeld", "ModelDrift", "Realised",
    "RowStatus", "Verdict",
]  # fmt: skip

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
    """The report of one finished job; `allocation` is the amount that it was given, by default its request."""

    submit_ts: Moment
    start_ts: Moment | None = None
    end_ts: Moment
    run_s: float | None = Field(default=None, ge=0.0, le=1e9, allow_inf_nan=False)
    outcome: Literal["completed", "failed", "oom", "cancelled", "timeout", "node_fail"]
    request: RequestRow
    allocation: RequestRow | None = None
    used: UsedRow = UsedRow()
    answer_id: Text | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        start, end, run_s = self.start_ts, self.end_ts, self.run_s
        if self.submit_ts < EARLIEST:
            raise ValueError(f"submit_ts: found {self.submit_ts.isoformat()}, expected a time after 1970 began")
        if start is not None and start < self.submit_ts:
            raise ValueError(f"start_ts: found {start.isoformat()}, expected no time before submit_ts")
        if end < (start or self.submit_ts):
            earlier = "start_ts" if start else "submit_ts"
            raise ValueError(f"end_ts: found {end.isoformat()}, expected no time before {earlier}")
        if run_s is None and start is None:
            raise ValueError("run_s: found neither, expected start_ts or run_s")
        if run_s is not None and run_s > (end - self.submit_ts).total_seconds() + SLACK_S:
            raise ValueError(f"run_s: found {run_s}, expected at most the seconds from submit_ts to end_ts")
        return self


class FeedbackBody(Part):
    """A feedback call: reports of finished jobs, and the trace of jobs that name none."""

    feedback: tuple[FeedbackRow, ...] = Field(min_length=1, max_length=MAX_JOBS, fail_fast=True)
    trace: Text | None = None


Verdict = Literal["ok", "watch", "drifted", "unknown"]


RowStatus = Literal["accepted", "duplicate", "conflict"]
Trust = Literal["believed", "bounded", "shown"]


class FeedbackResult(Answer):
    """The result for one report: stored, a repetition, or in conflict with an earlier one of its reporter on the job.

    `trust` says how far an accepted report counts: `believed`, of a token with the scope `accounting`; `bounded`, of
    the caller that asked about the job and names that answer's id; `shown`, any other, without effect.
    """

    job_id: str
    status: RowStatus
    trust: Trust | None = None


class BrakeHeld(Answer):
    """A brake on a user or a group, or if both are null on the task type: its jobs are not shrunk until it is released.

    Cluster null means the jobs without a cluster.
    """

    trace: str
    cluster: str | None
    task_type: str
    user: str | None
    group: str | None
    why: str
    since: AwareDatetime


class FeedbackAnswer(Answer):
    """The results of a feedback call, in the order of its reports.

    `brakes` are those that now hold for reported jobs, so that jobs like them that wait can get their requests back.
    """

    accepted: int
    duplicates: int
    conflicts: int
    results: tuple[FeedbackResult, ...]
    brakes: tuple[BrakeHeld, ...] = ()


class ModeHeld(Answer):
    """A mode that was set; a null cluster, task type or group means all."""

    trace: str
    cluster: str | None
    task_type: str | None
    group: str | None
    mode: Mode


class Hours(Answer):
    """Resource-hours over all instances: requested (`asked`), allocated, and the difference (`saved`)."""

    asked: Finite
    allocated: Finite
    saved: Finite


class Realised(Answer):
    """The effect of shrinking on the finished jobs of one task type; `kill_rate` is `kills` / `shrunk_jobs`."""

    trace: str
    task_type: str
    jobs: int
    shrunk_jobs: int
    kills: int
    kill_rate: Finite | None
    hours: dict[str, Hours]


class ModeAnswer(Answer):
    """The modes and brakes that the caller may see, the default mode, and the effect of shrinking by task type."""

    default: Mode
    modes: tuple[ModeHeld, ...]
    brakes: tuple[BrakeHeld, ...]
    realised: tuple[Realised, ...]


class ModeChange(ModeAnswer):
    """The state after a change, the mode that the change replaced or unset, and the brakes that it released.

    `note` says that no model serves the trace or task type of the mode now, which is set all the same, or that a reset
    found no brake.
    """

    replaced: tuple[ModeHeld, ...]
    released: tuple[BrakeHeld, ...]
    note: str | None = None


class Coverage(Answer):
    """The share of finished jobs at or below the upper quantile: `observed`, and `expected` by the model card."""

    of: str
    jobs: int
    observed: Finite | None
    expected: Finite | None
    standard_error: Finite | None
    verdict: Verdict


class Error(Answer):
    """Errors of the p50 in log seconds: median (positive if jobs ran longer), mean absolute, and that of the card."""

    jobs: int
    median_log: Finite | None
    mean_absolute_log: Finite | None
    expected_mean_absolute_log: Finite | None
    verdict: Verdict


class ModelDrift(Answer):
    """The drift of a model; `verdict` is the worst verdict of its coverage and error."""

    name: str
    version: str | None
    kind: Kind
    trace: str
    task_type: str
    coverage: tuple[Coverage, ...]
    error: Error | None
    verdict: Verdict


class DriftAnswer(Answer):
    """The drift of every model that the caller may see, measured on its last `window` finished jobs."""

    window: int
    models: tuple[ModelDrift, ...]

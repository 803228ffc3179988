"""Feedback: what finished jobs really took and used, checked, scored in hindsight, and stored once each.

What is learnt from it is `modelserve.lessons`'; how it reaches the models is `modelserve.feed`'s. Called by the routes
of the service.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.callers import Caller
from modelserve.errors import BadRequest
from modelserve.hindsight import scored_in_hindsight
from modelserve.requests import MAX_JOBS, Cores, RequestRow, Text
from modelserve.store.finished import Finished, Identity, insert_finished, known_digests

if TYPE_CHECKING:
    from modelserve.models import Snapshot
    from modelserve.service import Service

AHEAD: Final = timedelta(days=1)
"""How far a reported end may lie ahead of this machine's clock: clocks differ, jobs that have not ended are refused."""
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
SLACK_S: Final = 1.0
"""What a run time may exceed the time since submission by: schedulers round to seconds."""

RowStatus = Literal["accepted", "duplicate", "conflict"]


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("found a NUL character, expected text without one")
    return text


Name = Annotated[Text, AfterValidator(_without_nul)]


class UsedRow(BaseModel):
    """What one instance used: means of CPU and GPU, the largest memory over all instances; null where not measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_cores: Cores | None = None
    gpus: Cores | None = None
    mem_max_gib: Cores | None = None
    gpu_mem_max_gib: Cores | None = None


class FeedbackRow(BaseModel):
    """One finished job; `allocation` is what it really got, as it was asked for where that is not said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_id: Name
    task_type: Name
    trace: Name | None = None
    cluster: Name | None = None
    user: Name | None = None
    group: Name | None = None
    vc: Name | None = None
    role: Name = ROLE_WHOLE_JOB
    workload: Name | None = None
    gpu_type: Name | None = None
    instances: int = Field(default=1, ge=1, le=1_000_000)
    submit_ts: AwareDatetime
    start_ts: AwareDatetime | None = None
    end_ts: AwareDatetime
    run_s: float | None = Field(default=None, ge=0.0, le=1e9, allow_inf_nan=False, validate_default=True)
    outcome: Literal["completed", "failed", "oom", "cancelled", "timeout", "node_fail"]
    request: RequestRow
    allocation: RequestRow | None = None
    used: UsedRow = UsedRow()
    answer_id: Name | None = None

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
            raise ValueError("found neither start_ts nor run_s, expected one of them")
        if run_s is not None and submit and end and run_s > (end - submit).total_seconds() + SLACK_S:
            raise ValueError(f"found {run_s}, expected at most the seconds from submit_ts to end_ts")
        return run_s


class FeedbackBody(BaseModel):
    """A call: finished jobs, each of which may name its own trace."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    feedback: tuple[FeedbackRow, ...] = Field(min_length=1, max_length=MAX_JOBS)
    trace: Name | None = None


class FeedbackResult(BaseModel):
    """What became of one row: stored, there already, or there already and otherwise."""

    model_config = ConfigDict(frozen=True)

    job_id: str
    status: RowStatus


class FeedbackAnswer(BaseModel):
    """What became of a call, in the order of its rows; of the same job the first report stands."""

    model_config = ConfigDict(frozen=True)

    accepted: int
    duplicates: int
    conflicts: int
    results: tuple[FeedbackResult, ...]


def take_feedback(service: "Service", body: FeedbackBody, caller: Caller) -> FeedbackAnswer:
    """Store what finished jobs report and learn from it; all of the call is checked before any of it is stored.

    Raises
    ------
    BadRequest
        A row names no trace where none is set, or an end that lies ahead.
    Forbidden
        A row is out of the caller's reach.
    StoreError
        Nothing was stored.
    """
    at = service.clock()
    snapshot = service.models.current
    rows = [_finished(service, body, index, caller, at) for index in range(len(body.feedback))]
    known = known_digests(service.store, [row.identity for row in rows])
    # A job that names no cluster is of that of its VC, unless it was stored before any model could tell.
    rows = [row if row.cluster or row.identity in known else _placed(row, snapshot) for row in rows]
    known |= known_digests(service.store, [row.identity for row in rows if row.identity not in known])
    first: dict[Identity, Finished] = {}
    for row in rows:
        if row.identity not in known:
            first.setdefault(row.identity, row)
    earlier = insert_finished(service.store, scored_in_hindsight(list(first.values()), snapshot))
    service.feed.poll()
    return _answer(rows, {**known, **earlier}, first)


def _placed(row: Finished, snapshot: "Snapshot") -> Finished:
    models = (*snapshot.champions.values(), *snapshot.challengers.values())
    history = next((model.history for model in models if model.bundle.card.trace == row.trace), None)
    cluster = None if history is None else history.cluster_of(row.vc)
    return row if cluster is None else replace(row, cluster=cluster)


def _answer(rows: Sequence[Finished], earlier: dict[Identity, str], first: dict[Identity, Finished]) -> FeedbackAnswer:
    results = []
    for row in rows:
        mine = row.identity not in earlier and first[row.identity] is row
        digest = earlier.get(row.identity) or first[row.identity].digest
        status: RowStatus = "accepted" if mine else "duplicate" if row.digest == digest else "conflict"
        results.append(FeedbackResult(job_id=row.job_id, status=status))
    counts = {
        status: sum(each.status == status for each in results) for status in ("accepted", "duplicate", "conflict")
    }
    return FeedbackAnswer(
        accepted=counts["accepted"],
        duplicates=counts["duplicate"],
        conflicts=counts["conflict"],
        results=tuple(results),
    )


def _finished(service: "Service", body: FeedbackBody, index: int, caller: Caller, at: float) -> Finished:
    row = body.feedback[index]
    trace = row.trace or body.trace or service.settings.trace
    if trace is None:
        raise BadRequest(f"feedback.{index}.trace: found none, expected the job's trace, the call's, or one by default")
    caller.check_reach(trace, row.cluster, field=f"feedback.{index}")
    if row.end_ts.timestamp() > at + AHEAD.total_seconds():
        raise BadRequest(f"feedback.{index}.end_ts: found {row.end_ts.isoformat()}, expected a time that has been")
    given = row.allocation or row.request
    run_s = row.run_s
    if run_s is None and row.start_ts is not None:
        run_s = (row.end_ts - row.start_ts).total_seconds()
    said: dict[str, object] = {
        "trace": trace,
        "job_id": row.job_id,
        "role": row.role,
        "task_type": row.task_type,
        "user": row.user,
        "group": row.group,
        "vc": row.vc,
        "workload": row.workload,
        "gpu_type": row.gpu_type,
        "answer_id": row.answer_id,
        "instances": row.instances,
        "submit_us": _microseconds(row.submit_ts),
        "start_us": None if row.start_ts is None else _microseconds(row.start_ts),
        "end_us": _microseconds(row.end_ts),
        "run_s": run_s,
        "outcome": row.outcome,
        **{f"req_{name}": value for name, value in row.request},
        **{f"alloc_{name}": getattr(row.request, name) if value is None else value for name, value in given},
        "used_cpu_cores": row.used.cpu_cores,
        "used_gpus": row.used.gpus,
        "mem_max_gib": row.used.mem_max_gib,
        "gpu_mem_max_gib": row.used.gpu_mem_max_gib,
    }
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    # Whether the cluster was named or found makes no other report of it.
    return Finished(**said, cluster=row.cluster or "", digest=digest, caller=caller.name, at=at)  # type: ignore[arg-type]  # a column each


def _microseconds(at: datetime) -> int:
    return (at - EARLIEST) // timedelta(microseconds=1)

"""The context of one call: its models, feature rows and learned rules, and the record of its answer for the log.

Also converts jobs to the form from which features are built.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from pydantic_core import to_json

from features.online import JobAsked, OnlineHistory
from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.callers import Caller
from modelserve.contract.requests import JobRow
from modelserve.loading.feature_records import Scored, encode_features
from modelserve.settings import TypePolicy
from modelserve.store.answers import AnswerRecord
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray, IntArray, Job

if TYPE_CHECKING:
    from modelserve.contract.fields import Mode
    from modelserve.learning.learned import Learned
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

__all__ = ["Answered", "Kind", "RequestContext", "Whose", "as_json", "asked_of", "record_of"]

Kind = Literal["runtime", "usage"]
Whose = tuple[str, str | None, str]
"""Trace, workload and task type of a job; they determine its models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One response as JSON bytes, the models it used (such as `runtime.pai.ctr@7`), and counts for monitoring.

    `counts` has keys `("prediction", name, version, outcome)`, `("recommendation", resource, reason)`,
    `("refused_sample", reason)`, `("placement", code)`, and `(kind, reason)` with the kinds `reservation`, `route`,
    `plan` and `hold`. `reclaimed` holds for each resource the total requested and the total recommended, `reserved`
    the total requested and the total reserved, over all instances of all jobs. `kept` is the body of the call for the
    log, if it differs from the body as received.
    """

    body: bytes
    models: tuple[str, ...] = ()
    counts: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    reclaimed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reserved: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    kept: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The model for a job, or None. `failure` is the reason if a model exists but could not be loaded."""

    model: "ServedModel | None"
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The inputs of one call: a snapshot of the models (so that no response mixes two versions), and what was read.

    `trace` is the trace of jobs that name none, `now` the time of the call (Unix, s), `types` the settings' policies by
    task type, and `routing` the policy of sites (None: the default). `chosen` holds the models used, `scored` the
    feature rows built for them, and `row_jobs` the model and jobs of each entry of `scored`. `failed` holds the errors
    of models that failed, by reference.
    """

    snapshot: "Snapshot"
    learned: "Learned"
    answer_id: str = ""
    trace: str | None = None
    now: float = 0.0
    types: Mapping[str, TypePolicy] = field(default_factory=dict)
    routing: RoutingPolicy | None = None
    chosen: dict[tuple[Kind, Whose], Choice] = field(default_factory=dict)
    scored: list[Scored] = field(default_factory=list)
    row_jobs: "list[tuple[ServedModel, Sequence[JobAsked]]]" = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def choice(self, kind: Kind, whose: Whose) -> Choice:
        """Return the model for jobs of a trace, workload and task type."""
        found = self.chosen.get((kind, whose))
        if found is None:
            model = self.snapshot.model_of(kind, *whose)
            failure = None if model is not None else self.snapshot.failure_of(kind, *whose)
            found = self.chosen[kind, whose] = Choice(model=model, failure=failure)
        return found

    def cited(self) -> tuple[str, ...]:
        """Return the sorted references (`<name>@<version>`) of the models used by this call."""
        return tuple(sorted({each.model.reference for each in self.chosen.values() if each.model is not None}))

    def rows(self, model: "ServedModel", asked: "Sequence[JobAsked]", index: IntArray, *, counted: bool) -> Scored:
        """Return the feature rows of jobs for a model; `index` (n,) is the position of each job in the call.

        If `counted`, each job's measured runs are counted; otherwise the counts are 0.
        """
        self._check(model)
        try:
            found = model.look(asked)
        except Exception as error:  # a failing model must affect only its own jobs
            raise self._note_failure(model, error) from error
        seen = Scored(
            model=model.reference,
            digest=model.bundle.digest,
            rows=index,
            matrix=found.rows.matrix,
            reference_log_s=found.rows.reference_log_s,
            shift_log_s=found.shift_log_s,
            evidence=found.rows.evidence,
            runs=found.rows.runs if counted else np.zeros(len(asked), dtype=np.int64),
            versions=found.rows.versions,
            outputs=found.outputs,
        )
        self.scored.append(seen)
        self.row_jobs.append((model, asked))
        return seen

    def margins(self, model: "ServedModel", target: str, matrix: npt.NDArray[np.float32]) -> FloatArray:
        """Return the outputs (n, outputs) of a target's booster for a matrix (n, k), before calibration."""
        self._check(model)
        try:
            return model.margins(target, matrix)
        except Exception as error:  # a failing model must affect only its own jobs
            raise self._note_failure(model, error) from error

    def outputs(self, model: "ServedModel", seen: Scored) -> Mapping[str, FloatArray]:
        """Return the outputs (n, outputs) of every target's trees for feature rows; errors as `margins`."""
        self._check(model)
        if seen.outputs is not None:
            return seen.outputs
        try:
            return model.outputs(seen.matrix)
        except Exception as error:  # a failing model must affect only its own jobs
            raise self._note_failure(model, error) from error

    def mode(self, row: JobRow) -> "Mode":
        """Return the mode (`observe` or `enforce`) of the decision about a job."""
        return self.learned.mode(row.trace or self.trace or "", row.task_type, row.group, row.cluster)

    def braked(self, row: JobRow) -> str | None:
        """Return why and since when jobs of a job's type must not be shrunk; None if they may be shrunk."""
        stop = self.learned.braked(row.trace or self.trace or "", row.task_type, row.cluster)
        return None if stop is None else str(stop)

    def memory_floor_gib(self, row: JobRow | JobAsked) -> float:
        """Return the memory below which similar jobs were killed, or NaN; see `Learned.memory_floor_gib`."""
        return self.learned.memory_floor_gib(row.trace or self.trace or "", row.cluster, row.group, row.role, row.user)

    def _check(self, model: "ServedModel") -> None:
        if self.failed and model.reference in self.failed:
            raise PredictorUnavailable(self.failed[model.reference])

    def _note_failure(self, model: "ServedModel", error: Exception) -> PredictorUnavailable:
        text = f"{model.reference}: {error}"[:400]
        self.failed[model.reference] = text
        return PredictorUnavailable(text)


def as_json(body: BaseModel) -> bytes:
    """Return the body of a call as JSON, without the fields that have their default value."""
    return body.__pydantic_serializer__.to_json(body, exclude_defaults=True)


def record_of(kind: str, context: RequestContext, caller: Caller, body: bytes, answered: Answered) -> AnswerRecord:
    """Return the log record of a response; `body` is the body of the call as JSON.

    Its context names the models with the digests of their bundles, the versions of their histories, and the number of
    the latest feedback that the call took into account.
    """
    models = {}
    for choice in context.chosen.values():
        if choice.model is not None:
            bundle, reference = choice.model.bundle, choice.model.reference
            models[reference] = {
                "name": bundle.card.name,
                "version": bundle.version,
                "digest": bundle.digest,
                "history": _history_of(reference, context),
            }
    logged = {"trace": context.trace, "now": context.now, "seq": context.learned.seq, "models": models}
    return AnswerRecord(
        answer_id=context.answer_id,
        at=context.now,
        kind=kind,
        caller=caller.name,
        trace=context.trace or "",
        models=" ".join(answered.models),
        context=to_json(logged)[:-1] + b',"body":' + (answered.kept or body) + b"}",
        features=encode_features(context.scored),
        response=answered.body,
    )


def _history_of(model: str, context: RequestContext) -> tuple[int, int] | None:
    """Return how many runs feedback had added to a model's history for the first and last rows; None without rows."""
    versions = [each.versions for each in context.scored if each.model == model and each.versions is not None]
    return (versions[0][0], versions[-1][1]) if versions else None


def asked_of(job: Job | JobRow, history: OnlineHistory, context: RequestContext) -> JobAsked:
    """Convert a job to the form from which features are built; a missing trace or submit time is that of the call.

    A missing cluster is looked up by VC in the history.
    """
    at, request = job.submit_ts, job.request
    if at is None or isinstance(at, datetime):
        at = context.now if at is None else at.timestamp()
    return JobAsked(
        trace=job.trace or context.trace or "",
        cluster=job.cluster or history.cluster_of(job.vc),
        job_id=job.job_id,
        role=job.role,
        user=job.user,
        vc=job.vc,
        group=job.group,
        workload=job.workload,
        task_type=job.task_type,
        gpu_type=job.gpu_type,
        submit_us=round(at * 1e6),
        instances=job.instances,
        req_cpu_cores=np.nan if request.cpu_cores is None else request.cpu_cores,
        req_mem_gib=np.nan if request.mem_gib is None else request.mem_gib,
        req_gpus=np.nan if request.gpus is None else request.gpus,
        time_limit_s=np.nan,
        priority=np.nan,
    )

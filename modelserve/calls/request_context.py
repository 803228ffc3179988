"""The request context: the models, feature rows and learned rules that one call uses, recorded for the log.

Also converts jobs to the form from which features are built. A context is made by the service for each call, and by
`replay` from a logged record; it is used by every module of `modelserve.calls`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from features.online import JobAsked, OnlineHistory
from modelserve.contract.requests import JobRow
from modelserve.errors import BadRequest
from modelserve.loading.feature_records import Scored
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import FloatArray, IntArray, Job

if TYPE_CHECKING:
    from modelserve.contract.fields import Mode
    from modelserve.learning.learned import Learned
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

__all__ = ["RequestContext"]

Kind = Literal["runtime", "usage"]
Whose = tuple[str, str | None, str]
"""Trace, workload and task type of a job; they determine its models."""
Parts = tuple[str | None, ...]
"""Arguments of a look-up in `Learned`, in the order of the method's parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The model for a job, or None. `failure` is the reason if a model exists but could not be loaded."""

    model: "ServedModel | None"
    failure: str | None


RowSource = Callable[["ServedModel", "Sequence[JobAsked]", IntArray, bool], Scored]
"""Source of feature rows: the current history of the model (`from_history`), or the log (in a replay)."""


def from_history(model: "ServedModel", asked: "Sequence[JobAsked]", index: IntArray, counted: bool) -> Scored:
    """Build the feature rows of jobs from the model's history; if `counted`, also count each job's measured runs."""
    found = model.look(asked)
    return Scored(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackUsed:
    """The modes, brakes and memory floors that one call looked up in `Learned`, by the arguments of each look-up."""

    modes: "dict[Parts, Mode]" = field(default_factory=dict)
    brakes: dict[Parts, str | None] = field(default_factory=dict)
    floors_gib: dict[Parts, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The inputs of one call: a snapshot of the models (so that no response mixes two versions), and what was read.

    `chosen` holds the models used, `scored` the feature rows built for them, and `row_jobs` the model and jobs of each
    entry of `scored`. `failed` holds the errors of models that failed, by reference, and `feedback_used` the learned
    rules applied. With these and the bundles, the same response can be computed again.
    """

    snapshot: "Snapshot"
    learned: "Learned"
    row_source: RowSource = from_history
    chosen: dict[tuple[Kind, Whose], Choice] = field(default_factory=dict)
    scored: list[Scored] = field(default_factory=list)
    row_jobs: "list[tuple[ServedModel, Sequence[JobAsked]]]" = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    feedback_used: FeedbackUsed = field(default_factory=FeedbackUsed)

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

        Raises
        ------
        PredictorUnavailable
            The rows cannot be built, or the model failed earlier in this call.
        """
        self._check(model)
        try:
            seen = self.row_source(model, asked, index, counted)
        except BadRequest:  # in a replay, the log does not have these rows
            raise
        except Exception as error:  # a failing model must affect only its own jobs
            raise self._note_failure(model, error) from error
        self.scored.append(seen)
        self.row_jobs.append((model, asked))
        return seen

    def margins(self, model: "ServedModel", target: str, matrix: npt.NDArray[np.float32]) -> FloatArray:
        """Return the outputs (n, outputs) of a target's booster for a matrix (n, k), before calibration.

        Raises
        ------
        PredictorUnavailable
            The model failed, now or earlier in this call.
        """
        self._check(model)
        try:
            return model.margins(target, matrix)
        except Exception as error:  # a failing model must affect only its own jobs
            raise self._note_failure(model, error) from error

    def outputs(self, model: "ServedModel", seen: Scored) -> Mapping[str, FloatArray]:
        """Return the outputs (n, outputs) of every target's trees for feature rows, before calibration.

        Raises
        ------
        PredictorUnavailable
            The model failed, now or earlier in this call.
        """
        self._check(model)
        if seen.outputs is not None:
            return seen.outputs
        try:
            return model.outputs(seen.matrix)
        except Exception as error:  # a failing model must affect only its own jobs
            raise self._note_failure(model, error) from error

    def mode(self, trace: str, task_type: str, group: str | None, cluster: str | None) -> "Mode":
        """Return the mode (`observe` or `enforce`) of a job's recommendation."""
        key = (trace, task_type, group, cluster)
        found = self.feedback_used.modes.get(key)
        if found is None:
            found = self.feedback_used.modes[key] = self.learned.mode(trace, task_type, group, cluster)
        return found

    def braked(self, trace: str, task_type: str, cluster: str | None) -> str | None:
        """Return why and since when jobs of a type must not be shrunk; None if they may be shrunk."""
        key = (trace, task_type, cluster)
        if key not in self.feedback_used.brakes:
            stop = self.learned.braked(trace, task_type, cluster)
            self.feedback_used.brakes[key] = None if stop is None else str(stop)
        return self.feedback_used.brakes[key]

    def memory_floor_gib(
        self, trace: str, cluster: str | None, group: str | None, role: str, user: str | None
    ) -> float:
        """Return the memory below which similar jobs were killed, or NaN; see `Learned.memory_floor_gib`."""
        key = (trace, cluster, group, role, user)
        found = self.feedback_used.floors_gib.get(key)
        if found is None:
            found = self.learned.memory_floor_gib(trace, cluster, group, role, user)
            self.feedback_used.floors_gib[key] = found
        return found

    def _check(self, model: "ServedModel") -> None:
        if self.failed and model.reference in self.failed:
            raise PredictorUnavailable(self.failed[model.reference])

    def _note_failure(self, model: "ServedModel", error: Exception) -> PredictorUnavailable:
        text = f"{model.reference}: {error}"[:400]
        self.failed[model.reference] = text
        return PredictorUnavailable(text)


def asked_of(job: Job, history: OnlineHistory) -> JobAsked:
    """Convert a job to the form from which features are built; a missing cluster is looked up by VC in the history."""
    request = job.request
    return JobAsked(
        trace=job.trace,
        cluster=job.cluster or history.cluster_of(job.vc),
        job_id=job.job_id,
        role=job.role,
        user=job.user,
        vc=job.vc,
        group=job.group,
        workload=job.workload,
        task_type=job.task_type,
        gpu_type=job.gpu_type,
        submit_us=round(job.submit_ts * 1e6),
        instances=job.instances,
        req_cpu_cores=request.cpu_cores,
        req_mem_gib=request.mem_gib,
        req_gpus=request.gpus,
        time_limit_s=np.nan,
        priority=np.nan,
    )


def asked_of_row(row: JobRow, history: OnlineHistory, *, trace: str, now: float) -> JobAsked:
    """Convert a job of a call as `asked_of` does; a missing trace is `trace`, and a missing submit time is `now`."""
    request = row.request
    # Without a `Job` in between, which would take twice as long.
    return JobAsked(
        trace=row.trace or trace,
        cluster=row.cluster or history.cluster_of(row.vc),
        job_id=row.job_id,
        role=row.role,
        user=row.user,
        vc=row.vc,
        group=row.group,
        workload=row.workload,
        task_type=row.task_type,
        gpu_type=row.gpu_type,
        submit_us=round((row.submit_ts or datetime.fromtimestamp(now, UTC)).timestamp() * 1e6),
        instances=row.instances,
        req_cpu_cores=np.nan if request.cpu_cores is None else request.cpu_cores,
        req_mem_gib=np.nan if request.mem_gib is None else request.mem_gib,
        req_gpus=np.nan if request.gpus is None else request.gpus,
        time_limit_s=np.nan,
        priority=np.nan,
    )

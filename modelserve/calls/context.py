"""The context of one call: its models, feature rows and learned rules, and the record of its answer for the log.

The context is the predictor of Algorithm 1 for the jobs of its call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import to_json

from features.online import JobAsked, OnlineHistory
from modelserve.bundle.predictor import Kind, ModelPredictor, asked_of, entry_of
from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.bundle.served import Scored, ServedModel
from modelserve.callers import Caller
from modelserve.contract.fields import Mode
from modelserve.contract.requests import JobRow
from modelserve.learning.learned import Learned
from modelserve.loading.models import Snapshot
from modelserve.settings import TypePolicy
from modelserve.store.answers import AnswerRecord
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import Job, Predictor

__all__ = ["Answered", "RequestContext", "record_of"]

Whose = tuple[str, str | None, str]
"""Trace, workload and task type of a job; they determine its models."""
Values = dict[str, Any]  # Any: JSON values of a response
Made = TypeVar("Made")


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
class RequestContext(ModelPredictor):
    """The inputs of one call: a snapshot of the models (so that no response mixes two versions), and what was read.

    `trace` is the trace of jobs that name none, `now` the time of the call (Unix, s), `types` the settings' policies by
    task type, and `routing` the policy of sites (None: the default). `chosen` holds the models used, or why one could
    not be loaded. `scored` has the feature rows of each use of a model; `failed` the errors of models that failed, by
    reference. `known` caches jobs as converted for a history, by the ids of both, which the call keeps alive.
    """

    snapshot: Snapshot
    learned: Learned
    answer_id: str = ""
    trace: str | None = None
    now: float = 0.0
    types: Mapping[str, TypePolicy] = field(default_factory=dict)
    routing: RoutingPolicy | None = None
    chosen: dict[tuple[Kind, Whose], tuple[ServedModel | None, str | None]] = field(default_factory=dict)
    scored: list[Scored] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    known: dict[tuple[int, int], JobAsked] = field(default_factory=dict)

    def choice(self, kind: Kind, job: Job | JobRow) -> tuple[ServedModel | None, str | None]:
        """Return the model of a job; None without a model, with the reason if it could not be loaded."""
        whose = (job.trace or self.trace or "", job.workload, job.task_type)
        found = self.chosen.get((kind, whose))
        if found is None:
            model = entry_of(self.snapshot.champions, kind, *whose)
            failure = entry_of(self.snapshot.failures, kind, *whose) if model is None else None
            found = self.chosen[kind, whose] = (model, failure)
        return found

    def cited(self) -> tuple[str, ...]:
        """Return the sorted references (`<name>@<version>`) of the models used by this call."""
        return tuple(sorted({model.reference for model, _ in self.chosen.values() if model is not None}))

    def rows(self, model: ServedModel, jobs: Sequence[Job | JobRow]) -> tuple[list[JobAsked], Scored]:
        """Return jobs in the form from which features are built, and their feature rows; record these for the log."""
        asked, history = list[JobAsked](), model.history
        for job in jobs:
            key = id(job), id(history)
            known = self.known.get(key)
            if known is None:
                known = self.known[key] = self.asked(job, history)
            asked.append(known)
        seen = self.attempt(model, lambda: model.look(asked))
        self.scored.append(seen)
        return asked, seen

    def attempt(self, model: ServedModel, work: Callable[[], Made]) -> Made:
        """Do a model's work; if it fails, now or before in this call, raise `PredictorUnavailable`."""
        if model.reference not in self.failed:
            try:
                return work()
            except Exception as error:  # a failing model must affect only its own jobs
                self.failed[model.reference] = f"{model.reference}: {error}"[:400]
        raise PredictorUnavailable(self.failed[model.reference])

    def mode(self, row: JobRow) -> Mode:
        """Return the mode (`observe` or `enforce`) of the decision about a job."""
        return self.learned.mode(row.trace or self.trace or "", row.task_type, row.group, row.cluster)

    def braked(self, row: JobRow) -> str | None:
        """Return why and since when a job must not be shrunk, like others of its type, user or group; else None."""
        stop = self.learned.braked(row.trace or self.trace or "", row.task_type, row.cluster, row.group, row.user)
        return None if stop is None else str(stop)

    def memory_floor_gib(self, row: JobRow | JobAsked) -> float:
        """Return the memory below which similar jobs were killed, or NaN; see `Learned.memory_floor_gib`."""
        return self.learned.memory_floor_gib(row.trace or self.trace or "", row.cluster, row.group, row.role, row.user)

    def asked(self, job: Job | JobRow, history: OnlineHistory) -> JobAsked:
        """Convert a job to the form from which features are built; a missing trace or submit time is the call's.

        A missing cluster is looked up by VC in the history.
        """
        return asked_of(job, history, trace=self.trace or "", now=self.now)


def record_of(kind: str, context: RequestContext, caller: Caller, body: bytes, answered: Answered) -> AnswerRecord:
    """Return the log record of a response; `body` is the body of the call as JSON.

    Its context names the models with the digests of their bundles, the versions of their histories (how many runs
    feedback had added for the first and last rows), and the number of the latest feedback that the call considered.
    """
    versions: dict[str, list[tuple[int, int]]] = {}
    for seen in context.scored:
        versions.setdefault(seen.model, []).append(seen.rows.versions)
    models = {}
    for model, _ in context.chosen.values():
        if model is not None:
            read = versions.get(model.reference)
            models[model.reference] = {
                "name": model.bundle.card.name,
                "version": model.bundle.version,
                "digest": model.bundle.digest,
                "history": (read[0][0], read[-1][1]) if read else None,
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
        response=answered.body,
    )


def written(answer: object) -> bytes:
    """Return a response as JSON bytes; NaN and infinities become null.

    >>> written({"p50": 1.5, "p90": float("nan")})
    b'{"p50":1.5,"p90":null}'
    """
    return to_json(answer, inf_nan_mode="null")


def finite(value: float) -> float | None:
    """Return a number, or None if it is not finite."""
    return float(value) if math.isfinite(value) else None


@lru_cache(maxsize=1024)  # the few models have few distinct times
def moment(at: datetime) -> str:
    """Return a time as text in UTC, in the format of the responses.

    >>> from datetime import timedelta, timezone
    >>> moment(datetime(2026, 11, 20, 11, tzinfo=timezone(timedelta(hours=8))))
    '2026-11-20T03:00:00Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = RequestContext

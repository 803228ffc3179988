"""The logged context of a response, as JSON: the call, and the policies, models and learned rules that it used.

Feature rows are encoded in `modelserve.loading.served`. No predictions are made here. Written by the service for the
log; read by `modelserve.calls.replay`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from modelserve.bundle.card import complaint
from modelserve.callers import Caller
from modelserve.calls.request_context import Kind, RequestContext
from modelserve.errors import BadRequest
from modelserve.loading.feature_records import encode_features
from modelserve.settings import TypePolicy
from modelserve.store.answers import AnswerRecord

__all__ = [
    "HOLD",
    "PENDING",
    "PLACEMENT",
    "PLAN",
    "PREDICTION",
    "RECOMMENDATION",
    "RESERVATION",
    "ROUTE",
    "Answered",
    "Call",
    "as_json",
    "read_context",
    "record_of",
]

PREDICTION: Final = "prediction"
RECOMMENDATION: Final = "recommendation"
RESERVATION: Final = "reservation"
PLACEMENT: Final = "placement"
PENDING: Final = "pending"
ROUTE: Final = "route"
PLAN: Final = "plan"
HOLD: Final = "hold"

Parts = tuple[str | None, ...]


Counts = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One response as JSON bytes, the models it used (such as `runtime.pai.ctr@7`), and counts for monitoring.

    `counts` has keys `("prediction", name, version, outcome)`, `("recommendation", resource, reason)`,
    `("refused_sample", reason)`, `("placement", code)`, and `(kind, reason)` with the kinds `reservation`, `route`,
    `plan` and `hold`. `reclaimed` holds for each resource the total requested and the total recommended, `reserved`
    the total requested and the total reserved, over all instances of all jobs.
    """

    body: bytes
    models: tuple[str, ...] = ()
    counts: Counts = field(default_factory=dict)
    reclaimed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reserved: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: the id of its response, the trace of jobs that name none, and the time of the call (Unix, s)."""

    answer_id: str
    trace: str | None
    now: float


class _Logged(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoggedModel(_Logged):
    """A model that the call used, with the digest of its bundle and the version of its history.

    `history` is the number of runs that feedback had added to the history, when the first and when the last feature
    rows were built; null if none were built.
    """

    name: str
    version: str | None
    digest: str
    history: tuple[int, int] | None


class LoggedChoice(_Logged):
    """The model used for jobs of a trace, workload and task type (`whose`); if it could not be loaded, the reason."""

    kind: Kind
    whose: tuple[str, str | None, str]
    model: str | None
    failure: str | None


class LoggedFeedback(_Logged):
    """The modes, brakes and memory floors that the call looked up, with the arguments of each look-up (null: none)."""

    modes: tuple[tuple[Parts, Literal["observe", "enforce"]], ...] = ()
    brakes: tuple[tuple[Parts, str | None], ...] = ()
    floors_gib: tuple[tuple[Parts, float | None], ...] = ()


class LoggedContext(_Logged):
    """The inputs of a response except its feature rows.

    `seq` is the number of the latest change in the learnt state, `models` are by reference, `failed` are the errors of
    models that failed, `lessons` are the learned rules used, `types` are the policies by task type, and `body` is the
    body of the call.
    """

    trace: str | None
    now: float
    seq: int
    models: dict[str, LoggedModel]
    choices: tuple[LoggedChoice, ...]
    failed: dict[str, str]
    lessons: LoggedFeedback
    types: dict[str, TypePolicy]
    body: dict[str, object]


def write_context(context: RequestContext, call: Call, body: bytes, types: Mapping[str, TypePolicy]) -> bytes:
    """Return the logged context of a response as JSON; `body` is the body of the call as JSON."""
    models, choices, versions = {}, [], _versions(context)
    for (kind, whose), choice in context.chosen.items():
        reference = None
        if choice.model is not None:
            bundle, reference = choice.model.bundle, choice.model.reference
            models[reference] = {
                "name": bundle.card.name,
                "version": bundle.version,
                "digest": bundle.digest,
                "history": versions.get(reference),
            }
        choices.append({"kind": kind, "whose": whose, "model": reference, "failure": choice.failure})
    used = context.feedback_used
    logged = {
        "trace": call.trace,
        "now": call.now,
        "seq": context.learned.seq,
        "models": models,
        "choices": choices,
        "failed": context.failed,
        "lessons": {
            "modes": list(used.modes.items()),
            "brakes": list(used.brakes.items()),
            "floors_gib": list(used.floors_gib.items()),
        },
        "types": {name: policy.model_dump() for name, policy in types.items()},
    }
    return to_json(logged, inf_nan_mode="null")[:-1] + b',"body":' + body + b"}"


def _versions(context: RequestContext) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for each in context.scored:
        if each.versions is not None:
            first, _ = found.get(each.model, each.versions)
            found[each.model] = first, each.versions[1]
    return found


def read_context(data: bytes) -> LoggedContext:
    """Read a context that `write_context` wrote.

    Raises
    ------
    BadRequest
        The data has another format.
    """
    try:
        return LoggedContext.model_validate_json(data)
    except ValidationError as error:
        raise BadRequest(f"context of the answer: {complaint(error)}; it was written by another version") from error


def as_json(body: BaseModel) -> bytes:
    """Return the body of a call as JSON, without the fields that have their default value."""
    return body.__pydantic_serializer__.to_json(body, exclude_defaults=True)


def record_of(
    kind: str,
    context: RequestContext,
    call: Call,
    caller: Caller,
    body: bytes,
    answered: Answered,
    types: Mapping[str, TypePolicy] = MappingProxyType({}),
) -> AnswerRecord:
    """Return the log record of a response; `body` is the body of the call as JSON."""
    return AnswerRecord(
        answer_id=call.answer_id,
        at=call.now,
        kind=kind,
        caller=caller.name,
        trace=call.trace or "",
        models=" ".join(answered.models),
        context=write_context(context, call, body, types),
        features=encode_features(context.scored),
        response=answered.body,
    )

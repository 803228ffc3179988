"""What an answer was made from beside the models' features, as JSON: the call, the policy, the models, the lessons.

Nothing is scored here. Written by `modelserve.calls` for the log; read by
`modelserve.calls.replay`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from modelserve.bundle.card import complaint
from modelserve.callers import Caller
from modelserve.calls.sight import Kind, Sight
from modelserve.errors import BadRequest
from modelserve.loading.scored import encode_features
from modelserve.settings import TypePolicy
from modelserve.store.answers import AnswerRecord

PREDICTION: Final = "prediction"
RECOMMENDATION: Final = "recommendation"

Parts = tuple[str | None, ...]


Counts = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer as bytes: its JSON, the models it cites (`runtime.pai.ctr@7`), and the figures for the metrics.

    `counts` has keys `("prediction", name, version, outcome)` and `("recommendation", resource, reason)`; `reclaimed`
    holds, per resource, the requested and the recommended total over the instances of all jobs.
    """

    body: bytes
    models: tuple[str, ...] = ()
    counts: Counts = field(default_factory=dict)
    reclaimed: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The context of a call: the id of its answer, the trace of jobs that name none, and the time (Unix, s)."""

    answer_id: str
    trace: str | None
    now: float


class _Seen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSeen(_Seen):
    """A model that answered: which bundle, to the byte, and how many runs feedback had added to its history.

    `history` counts them when the first and when the last rows were built; null where none were.
    """

    name: str
    version: str | None
    digest: str
    history: tuple[int, int] | None


class ChoiceSeen(_Seen):
    """Which model answered jobs of a trace, workload and task type; without one, what was wrong with it."""

    kind: Kind
    whose: tuple[str, str | None, str]
    model: str | None
    failure: str | None


class LessonsSeen(_Seen):
    """What `Learned` said about the jobs, by what it was asked; a floor is null where there was none."""

    modes: tuple[tuple[Parts, Literal["observe", "enforce"]], ...] = ()
    brakes: tuple[tuple[Parts, str | None], ...] = ()
    floors_gib: tuple[tuple[Parts, float | None], ...] = ()


class Context(_Seen):
    """Everything that an answer rests on beside the features.

    `seq` is how far feedback had been learnt from; `models` are by reference; `failed` says which fell over at work;
    `types` holds the settings of the task types; `body` is the call as it was understood.
    """

    trace: str | None
    now: float
    seq: int
    models: dict[str, ModelSeen]
    choices: tuple[ChoiceSeen, ...]
    failed: dict[str, str]
    lessons: LessonsSeen
    types: dict[str, TypePolicy]
    body: dict[str, object]


def context_of(sight: Sight, call: Call, body: bytes, types: Mapping[str, TypePolicy]) -> bytes:
    """Write what an answer rests on; `body` is the call's JSON."""
    models, choices, versions = {}, [], _versions(sight)
    for (kind, whose), choice in sight.chosen.items():
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
    lessons = sight.lessons
    said = {
        "trace": call.trace,
        "now": call.now,
        "seq": sight.learned.seq,
        "models": models,
        "choices": choices,
        "failed": sight.failed,
        "lessons": {
            "modes": list(lessons.modes.items()),
            "brakes": list(lessons.brakes.items()),
            "floors_gib": list(lessons.floors_gib.items()),
        },
        "types": {name: policy.model_dump() for name, policy in types.items()},
    }
    return to_json(said, inf_nan_mode="null")[:-1] + b',"body":' + body + b"}"


def _versions(sight: Sight) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for each in sight.scored:
        if each.versions is not None:
            first, _ = found.get(each.model, each.versions)
            found[each.model] = first, each.versions[1]
    return found


def read_context(data: bytes) -> Context:
    """Read what `context_of` wrote.

    Raises
    ------
    BadRequest
        It is none.
    """
    try:
        return Context.model_validate_json(data)
    except ValidationError as error:
        raise BadRequest(f"context of the answer: {complaint(error)}; it was written by another version") from error


def as_json(body: BaseModel) -> bytes:
    """Write a call's body as JSON, without what it leaves as it is by default."""
    return body.__pydantic_serializer__.to_json(body, exclude_defaults=True)


def record_of(
    kind: str,
    sight: Sight,
    call: Call,
    caller: Caller,
    body: bytes,
    answered: Answered,
    types: Mapping[str, TypePolicy] = MappingProxyType({}),
) -> AnswerRecord:
    """Return an answer as it is logged, with the call's JSON `body` and all else that it rests on."""
    return AnswerRecord(
        answer_id=call.answer_id,
        at=call.now,
        kind=kind,
        caller=caller.name,
        trace=call.trace or "",
        models=" ".join(answered.models),
        context=context_of(sight, call, body, types),
        features=encode_features(sight.scored),
        response=answered.body,
    )

"""Calls that list what a caller may see: models with their metrics, importances and cards, and new recommendations.

The data come from the serving snapshot and from the log of answers. No answer shows users.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.card import MODEL_NAME
from modelserve.bundle.served import ServedModel
from modelserve.callers import Caller
from modelserve.contract.feedback_rules import shrunk_resources
from modelserve.contract.jobs import RECENT_SHOWN, Amounts, Became, Recent, RecentAnswer
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelFailure, ModelRow, ModelsAnswer
from modelserve.errors import NotKnown
from modelserve.loading.models import Snapshot
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, Part, newest_answers
from modelserve.store.finished import RESOURCES, Finished, named_finished

__all__ = ["card_of", "importances_of", "list_models", "recent_recommendations"]


LOOKED_THROUGH: Final = 1000
"""Maximum number of logged responses searched for recommendations, newest first."""
READ_BYTES: Final = 32 * 2**20
"""Maximum total size of the logged responses that are read."""
_PARTS: Final[tuple[Part, ...]] = ("context", "response")


def list_models(snapshot: Snapshot, caller: Caller) -> ModelsAnswer:
    """Return the models of the traces that the caller may see."""
    names = _within_reach(snapshot, caller)
    return ModelsAnswer(
        generation=snapshot.generation,
        models=tuple(_row(snapshot.champions[name]) for name in names if name in snapshot.champions),
        failures=tuple(
            ModelFailure(name=name, error=snapshot.failures[name]) for name in names if name in snapshot.failures
        ),
    )


def importances_of(snapshot: Snapshot, caller: Caller, name: str) -> ImportancesAnswer:
    """Return the importances of a model's features, the most important first; it raises the errors of `card_of`."""
    bundle = _model(snapshot, caller, name).bundle
    ranked = sorted(bundle.importances, key=lambda each: -(each.mean if each.mean is not None else float("-inf")))
    return ImportancesAnswer(
        name=name,
        version=bundle.version,
        importances=None if bundle.card.no_importances else tuple(ranked),
        reason=bundle.card.no_importances,
        important=bundle.card.important,
        resources=bundle.card.resource_importances,
        response=bundle.card.response,
    )


def card_of(snapshot: Snapshot, caller: Caller, name: str) -> CardAnswer:
    """Return the card of a model."""
    bundle = _model(snapshot, caller, name).bundle
    return CardAnswer(name=name, version=bundle.version, digest=bundle.digest, card=bundle.card)


def _model(snapshot: Snapshot, caller: Caller, name: str) -> ServedModel:
    _check_known(snapshot, caller, name)
    if name not in snapshot.champions:
        raise NotKnown(f"{name}: no champion is loaded ({snapshot.failures[name]})")
    return snapshot.champions[name]


def _within_reach(snapshot: Snapshot, caller: Caller) -> list[str]:
    matches = map(MODEL_NAME.fullmatch, sorted({*snapshot.champions, *snapshot.failures}))
    return [match[0] for match in matches if match and caller.reaches(match[2])]


def _check_known(snapshot: Snapshot, caller: Caller, name: str) -> None:
    """Raise `NotKnown`, with similar names, unless the caller may see the model.

    The error is the same for a model that does not exist and for one that the caller may not see.
    """
    names = _within_reach(snapshot, caller)
    if name not in names:
        near = ", ".join(get_close_matches(name[:200], names, n=3, cutoff=0.0)) or "none: no model is loaded"
        raise NotKnown(f"model {name[:80]!r} is not known, expected one of {near}")


def _row(model: ServedModel) -> ModelRow:
    bundle, card = model.bundle, model.bundle.card
    of_card = {name: getattr(card, name) for name in ModelRow.model_fields if name in type(card).model_fields}
    of_bundle = {"version": bundle.version, "digest": bundle.digest, "features": len(bundle.contract.names)}
    of_bundle["answer"] = card.answer
    return ModelRow.model_validate({**of_card, **of_bundle})


def recent_recommendations(
    store: Store, caller: Caller, trace: str | None = None, task_type: str | None = None
) -> RecentAnswer:
    """Return the newest logged recommendations that the caller may see, filtered by trace and task type if given."""
    records = newest_answers(store, parts=_PARTS, kind="recommendation", limit=LOOKED_THROUGH, limit_bytes=READ_BYTES)
    rows = (row for record in records for row in _rows(record, caller, trace, task_type))
    newest = list(islice(rows, RECENT_SHOWN))
    ran: dict[tuple[str, str, str], list[Finished]] = defaultdict(list)
    for each in named_finished(store, {(row.trace, row.job_id) for row in newest}):
        ran[each.trace, each.job_id, each.role].append(each)
    return RecentAnswer(
        recommendations=tuple(
            row.model_copy(update={"finished": _became(row, ran[row.trace, row.job_id, row.role])}) for row in newest
        )
    )


def _rows(record: AnswerRecord, caller: Caller, trace: str | None, task_type: str | None) -> Iterator[Recent]:
    """Yield a record's recommendations for jobs of a trace and type (None: any) that the caller may see.

    A caller bound to clusters sees no jobs without a cluster. An unreadable record yields nothing.
    """
    try:
        for job, answer in record.recommendations():
            of, cluster = job["trace"], job.get("cluster")
            chosen = trace in (None, of) and task_type in (None, job["task_type"])
            if chosen and caller.reaches(of) and (caller.clusters is None or cluster in caller.clusters):
                yield _recent(record, job, answer)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return


def _recent(record: AnswerRecord, job: Mapping[str, Any], answer: Mapping[str, Any]) -> Recent:  # Any: JSON values
    instances, request, target = int(job.get("instances", 1)), answer["request"], answer["target"]
    names = ("mode", "request", "target", "reasons")
    return Recent.model_validate(
        {
            "answer_id": record.answer_id,
            "at": datetime.fromtimestamp(record.at, UTC),
            "trace": job["trace"],
            "cluster": job.get("cluster"),
            "job_id": job["job_id"],
            "role": job.get("role", ROLE_WHOLE_JOB),
            "task_type": job["task_type"],
            "instances": instances,
            **{name: answer[name] for name in names},
            "freed": _less([request[name] for name in RESOURCES], [target[name] for name in RESOURCES], instances),
            "finished": None,
        }
    )


def _became(row: Recent, ran: Sequence[Finished]) -> Became | None:
    """Return the outcome of a recommendation's job; None unless exactly one finished job matches."""
    alike = [each for each in ran if row.cluster in (None, each.cluster) and each.answer_id in (None, row.answer_id)]
    if len(alike) != 1:
        return None
    [job] = alike
    return Became(
        outcome=job.outcome,
        run_s=job.run_s,
        applied=bool(shrunk_resources(job)),
        saved_hours=_less(job.requests, job.allocations, job.run_s * job.instances / 3600.0),
    )


def _less(asked: Sequence[float | None], given: Sequence[float | None], times: float) -> Amounts:
    pairs = zip(RESOURCES, asked, given, strict=True)
    return Amounts.model_validate({name: None if a is None or b is None else (a - b) * times for name, a, b in pairs})

"""Compute a logged response again, byte for byte, from the logged feature rows and the bundles of its models.

Histories and the store are not read, so nothing learned after the response changes the result. Called by
`taut recommend --explain`.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from features.online import OnlineHistory
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import complaint
from modelserve.bundle.champions import version_folder
from modelserve.calls.holds import holds
from modelserve.calls.logged_context import (
    HOLD,
    PENDING,
    PLACEMENT,
    PLAN,
    PREDICTION,
    RECOMMENDATION,
    RESERVATION,
    ROUTE,
    Call,
    LoggedContext,
    LoggedModel,
    read_context,
)
from modelserve.calls.measured import read_logged
from modelserve.calls.placements import explained, placed
from modelserve.calls.plans import plans
from modelserve.calls.predictions import predicted
from modelserve.calls.recommendations import recommended
from modelserve.calls.request_context import Choice, FeedbackUsed, RequestContext, RowSource
from modelserve.calls.reservations import reserved
from modelserve.calls.routes import read_logged_routes, routed
from modelserve.contract.holds import HoldBody
from modelserve.contract.placements import ClusterBody, PendingBody
from modelserve.contract.plans import PlanBody
from modelserve.contract.requests import PredictBody, RecommendBody
from modelserve.errors import BadRequest, BundleError, NotKnown
from modelserve.learning.learned import Learned
from modelserve.loading.feature_records import Scored, decode_features
from modelserve.loading.models import Snapshot
from modelserve.loading.served import ServedModel

if TYPE_CHECKING:
    from features.online import JobAsked
    from modelserve.store.answers import AnswerRecord
    from scheduler_core.types import IntArray

__all__ = ["NO_MODELS", "decode_features", "replay"]


NO_MODELS: Final = Snapshot(
    champions=MappingProxyType({}),
    challengers=MappingProxyType({}),
    failures=MappingProxyType({}),
    generation=0,
    loaded_at=0.0,
)
"""Empty snapshot of models, since the log says which models the call used."""


def replay(record: "AnswerRecord", bundles: Path) -> bytes:
    """Return the response of a logged call, computed again.

    Raises
    ------
    NotKnown
        A model version used by the call is no longer in the folder, or its folder has another bundle.
    BadRequest
        The record is of an unknown kind, or was written by another version of the service.
    """
    seen = read_context(record.context)
    models = {reference: _model(each, bundles) for reference, each in seen.models.items()}
    context = RequestContext(
        snapshot=NO_MODELS,
        learned=Learned(seq=seen.seq),
        row_source=_from_log(decode_features(record.features)),
        chosen={
            (each.kind, each.whose): Choice(
                model=None if each.model is None else models[each.model], failure=each.failure
            )
            for each in seen.choices
        },
        failed=dict(seen.failed),
        feedback_used=_feedback_used(seen),
    )
    call = Call(answer_id=record.answer_id, trace=seen.trace, now=seen.now)
    try:
        if record.kind == PREDICTION:
            return predicted(context, PredictBody.model_validate(seen.body, strict=False), call).body
        if record.kind == RECOMMENDATION:
            return recommended(context, RecommendBody.model_validate(seen.body, strict=False), call, seen.types).body
        if record.kind == RESERVATION:
            body, found = read_logged(seen.body)
            return reserved(context, body.jobs, found, call, seen.types).body
        if record.kind == PLAN:
            return plans(context, PlanBody.model_validate(seen.body, strict=False), call).body
        if record.kind == HOLD:
            return holds(context, HoldBody.model_validate(seen.body, strict=False), call).body
        if record.kind == PLACEMENT:
            return placed(ClusterBody.model_validate(seen.body, strict=False), call).body
        if record.kind == PENDING:
            return explained(PendingBody.model_validate(seen.body, strict=False), call).body
        if record.kind == ROUTE:
            route_body, rules = read_logged_routes(seen.body)
            return routed(route_body, call, rules).body
    except ValidationError as error:
        raise BadRequest(f"call of the answer: {complaint(error)}; it was written by another version") from error
    kinds = ", ".join((PREDICTION, RECOMMENDATION, RESERVATION, PLACEMENT, PENDING, ROUTE, PLAN, HOLD))
    raise BadRequest(f"kind: found {record.kind[:40]!r}, expected one of {kinds}")


def _model(seen: LoggedModel, bundles: Path) -> ServedModel:
    where = f"{seen.name}@{seen.version}"
    if seen.version is None:
        raise NotKnown(f"{where}: the model that answered has no version, expected a mirrored one")
    try:
        bundle = read_bundle(version_folder(bundles, seen.name, seen.version), version=seen.version)
    except BundleError as error:
        raise NotKnown(f"{where}: the version that answered cannot be read ({error}); mirror it again") from error
    if bundle.digest != seen.digest:
        raise NotKnown(
            f"{where}: found bundle {bundle.digest[:12]}, expected {seen.digest[:12]}, which answered; mirror it again"
        )
    return ServedModel.of(bundle, OnlineHistory(bundle.history))


def _from_log(logged: list[Scored]) -> RowSource:
    """Return a source of feature rows that takes each model's rows from the log, in the order of logging.

    A replay runs the same code as the call did, so it asks for the rows in the same order.
    """
    rest: dict[str, deque[Scored]] = defaultdict(deque)
    for each in logged:
        rest[each.model].append(each)

    def look(model: ServedModel, asked: "Sequence[JobAsked]", index: "IntArray", counted: bool) -> Scored:  # noqa: ARG001  # the log holds the counts too
        left = rest[model.reference]
        if not left or left[0].rows.tolist() != index.tolist():
            raise BadRequest(f"features: found none of {model.reference} for {len(asked)} jobs, expected those logged")
        return left.popleft()

    return look


def _feedback_used(seen: LoggedContext) -> FeedbackUsed:
    nan = float("nan")
    floors: Mapping[tuple[str | None, ...], float | None] = dict(seen.lessons.floors_gib)
    return FeedbackUsed(
        modes=dict(seen.lessons.modes),
        brakes=dict(seen.lessons.brakes),
        floors_gib={key: nan if value is None else value for key, value in floors.items()},
    )

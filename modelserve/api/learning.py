"""Routes for feedback about finished jobs, drift of the models, modes, and the erasure of a user.

The work is done in `modelserve.learning`. All of it reads or writes the store, so it runs in a thread (`Slots`), not on
the event loop. Added by `modelserve.api.app`.
"""

from collections import Counter
from functools import partial
from typing import Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody, asked_for, in_path
from modelserve.api.calls import call_of
from modelserve.api.operations import BODY, CALL, SLOT, Operation, Parameter
from modelserve.contract.feedback import FeedbackBody
from modelserve.contract.learning import DriftAnswer, ErasureAnswer, FeedbackAnswer, ModeAnswer, ModeChange
from modelserve.contract.requests import ModeBody
from modelserve.errors import BadRequest
from modelserve.scopes import Scope

TAG: Final = "feedback"

FEEDBACK: Final = JsonBody(FeedbackBody)
MODE: Final = JsonBody(ModeBody)


async def feedback(request: Request) -> Response:
    """Store reports of finished jobs: their run times and resource use."""
    call = call_of(request)
    caller = call.allowed(Scope.FEEDBACK)
    body = await FEEDBACK.of(call)
    call.rows = len(body.feedback)
    if call.rows > call.desk.settings.rows_limit:
        raise BadRequest(f"feedback: {call.rows} rows, expected at most {call.desk.settings.rows_limit}")
    taken = await call.desk.slots.run(partial(call.service.take_feedback, body, caller))
    outcomes = Counter(
        row.outcome if result.status == "accepted" else str(result.status)
        for row, result in zip(body.feedback, taken.results, strict=True)
    )
    for outcome, count in outcomes.items():
        call.desk.metrics.feedback.labels(outcome).inc(count)
    for trust, count in Counter(each.trust for each in taken.results if each.trust is not None).items():
        call.desk.metrics.trust.labels(trust).inc(count)
    return json_response(taken)


async def drift(request: Request) -> Response:
    """Return the drift of the models, measured on reports of finished jobs."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    asked = asked_for(request)
    return json_response(await call.desk.slots.run(partial(call.service.read_drift, caller, **asked)))


async def modes(request: Request) -> Response:
    """Return the modes (observe or enforce) that are set, the brakes, and the resources that finished jobs saved."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    return json_response(await call.desk.slots.run(partial(call.service.read_modes, caller)))


async def mode(request: Request) -> Response:
    """Set a mode, unset a mode, or release a brake."""
    call = call_of(request)
    caller = call.allowed(Scope.ADMIN)
    body = await MODE.of(call)
    return json_response(await call.desk.slots.run(partial(call.service.set_mode, body, caller)))


def json_response(answer: BaseModel) -> Response:
    """Return a Pydantic model as a JSON response."""
    return Response(answer.model_dump_json(), media_type="application/json")


TRACE: Final = Parameter(name="trace", description="Of this trace.", place="query")
TYPE: Final = Parameter(name="task_type", description="Of this task type.", place="query")


async def erasure(request: Request) -> Response:
    """Erase a user's history."""
    call = call_of(request)
    caller = call.allowed(Scope.ADMIN)
    asked = asked_for(request, required=("trace",))
    user = in_path(request, "user")
    return json_response(await call.desk.slots.run(partial(call.service.erase_user, caller, user=user, **asked)))


OPERATIONS: Final = (
    Operation(
        method="POST", path="/v1/feedback", endpoint=feedback, summary="What finished jobs took and used", tag=TAG,
        body=FeedbackBody, answer=FeedbackAnswer, faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="GET", path="/v1/drift", endpoint=drift, summary="How the models stand, by feedback", tag=TAG,
        answer=DriftAnswer, faults=(*CALL, 422, *SLOT),
        parameters=(TRACE, TYPE),
    ),
    Operation(
        method="GET", path="/v1/mode", endpoint=modes, summary="Where recommendations are applied", tag=TAG,
        answer=ModeAnswer, faults=(*CALL, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/mode", endpoint=mode, summary="Set or unset a mode, or release a brake", tag=TAG,
        body=ModeBody, answer=ModeChange, faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="DELETE", path="/v1/users/{user}/history", endpoint=erasure, tag="users",
        summary="Forget what a user's jobs taught", answer=ErasureAnswer, faults=(*CALL, 404, 422, *SLOT), slashes=True,
        parameters=(
            Parameter(name="user", description="The user."),
            Parameter(name="trace", description="Of this trace.", place="query", required=True),
            Parameter(name="cluster", description="Of this cluster only.", place="query"),
        ),
    ),
)  # fmt: skip

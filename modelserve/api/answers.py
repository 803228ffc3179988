"""Routes about many jobs: predictions and recommendations, new and recent.

What is answered is worked out in `modelserve`; here it is only decided where: a few jobs on the event loop, since a
thread would cost more than they do, all else beside it.
"""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody
from modelserve.api.calls import Call, call_of
from modelserve.api.learning import TRACE, TYPE, said
from modelserve.api.operations import BODY, CALL, SLOT, Operation
from modelserve.api.queries import asked_for
from modelserve.callers import Scope
from modelserve.calls.context import Answered
from modelserve.contract.jobs import PredictAnswer, RecentAnswer, RecommendAnswer
from modelserve.contract.requests import PredictBody, RecommendBody
from modelserve.errors import BadRequest

TAG: Final = "jobs"

JOBS_AT_ONCE: Final = 16
"""Jobs that are predicted on the event loop: about a millisecond."""

PREDICT: Final = JsonBody(PredictBody)
RECOMMEND: Final = JsonBody(RecommendBody)


async def predictions(request: Request) -> Response:
    """Predict run time and peak use of each job."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await PREDICT.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.predict_jobs, body, caller, answer_id=call.answer_id, said=call.body)
    return answer(call, ask() if call.rows <= JOBS_AT_ONCE else await call.desk.slots.run(ask))


async def recommendations(request: Request) -> Response:
    """Recommend how far each job's request can shrink."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await RECOMMEND.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.recommend_jobs, body, caller, answer_id=call.answer_id, said=call.body)
    return answer(call, await call.desk.slots.run(ask))


async def recent(request: Request) -> Response:
    """Show the newest recommendations."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    asked = asked_for(request)
    return said(await call.desk.slots.run(partial(call.service.recent_recommendations, caller, **asked)))


def _counted(call: Call, jobs: int) -> int:
    limit = call.desk.settings.rows_limit
    if jobs > limit:
        raise BadRequest(f"jobs: {jobs} jobs, expected at most {limit}")
    return jobs


def answer(call: Call, answered: Answered) -> Response:
    """Return an answer as it was written, and keep what is to be counted and logged of it."""
    call.models = answered.models
    call.desk.metrics.answered(answered)
    return Response(answered.body, media_type="application/json")


OPERATIONS: Final = (
    Operation(
        method="POST", path="/v1/predictions", endpoint=predictions, tag=TAG,
        summary="Run time and peak use of each job", body=PredictBody, answer=PredictAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/recommendations", endpoint=recommendations, tag=TAG,
        summary="How far each job's request can shrink, and why", body=RecommendBody, answer=RecommendAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="GET", path="/v1/recommendations", endpoint=recent, tag=TAG,
        summary="The newest recommendations, and what they freed", answer=RecentAnswer, faults=(*CALL, 422, *SLOT),
        parameters=(TRACE, TYPE),
    ),
)  # fmt: skip

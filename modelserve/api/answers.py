"""Routes about jobs: predictions, recommendations, reservations, placements, routes, plans, holds, explanations.

Predictions for a few jobs are computed on the event loop, since handing them to a thread would take longer. Everything
else runs in a thread (`Slots`). Added by `modelserve.api.app`.
"""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import BoundedBody, JsonBody, asked_for
from modelserve.api.calls import Call, call_of
from modelserve.api.learning import TRACE, TYPE, json_response
from modelserve.api.operations import BODY, CALL, SLOT, Operation
from modelserve.calls.logged_context import Answered
from modelserve.contract.holds import HoldAnswer, HoldBody
from modelserve.contract.jobs import ExplainAnswer, PredictAnswer, RecentAnswer, RecommendAnswer, WhatIfAnswer
from modelserve.contract.placements import ClusterBody, PendingAnswer, PendingBody, PlaceAnswer
from modelserve.contract.plans import PlanAnswer, PlanBody
from modelserve.contract.requests import ExplainBody, PredictBody, RecommendBody, WhatIfBody
from modelserve.contract.reservations import ReserveAnswer, ReserveBody
from modelserve.contract.routes import RouteAnswer, RouteBody
from modelserve.errors import BadRequest
from modelserve.scopes import Scope

TAG: Final = "jobs"

JOBS_AT_ONCE: Final = 16
"""Maximum number of jobs in a call that is predicted on the event loop, which takes about a millisecond."""

PREDICT: Final = JsonBody(PredictBody)
RECOMMEND: Final = JsonBody(RecommendBody)
RESERVE: Final = BoundedBody(ReserveBody)
PLACE: Final = BoundedBody(ClusterBody)
PENDING: Final = BoundedBody(PendingBody)
ROUTE: Final = BoundedBody(RouteBody)
PLAN: Final = BoundedBody(PlanBody)
HOLD: Final = BoundedBody(HoldBody)
EXPLAIN: Final = JsonBody(ExplainBody)
WHAT_IF: Final = JsonBody(WhatIfBody)


async def predictions(request: Request) -> Response:
    """Predict the run time and peak resource use of each job."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await PREDICT.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.predict_jobs, body, caller, answer_id=call.answer_id, call_json=call.body)
    return answer(call, ask() if call.rows <= JOBS_AT_ONCE else await call.desk.slots.run(ask))


async def recommendations(request: Request) -> Response:
    """Recommend how far each job's request can shrink."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await RECOMMEND.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.recommend_jobs, body, caller, answer_id=call.answer_id, call_json=call.body)
    return answer(call, await call.desk.slots.run(ask))


async def reservations(request: Request) -> Response:
    """Return what to reserve for each running job."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await RESERVE.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.reserve_jobs, body, caller, answer_id=call.answer_id)
    return answer(call, await call.desk.slots.run(ask))


async def placements(request: Request) -> Response:
    """Return where each waiting job of a cluster starts now, and why."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await PLACE.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.place_jobs, body, caller, answer_id=call.answer_id, call_json=call.body)
    return answer(call, await call.desk.slots.run(ask))


async def explain_pending(request: Request) -> Response:
    """Return why jobs wait, and what would have to change."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await PENDING.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.explain_pending, body, caller, answer_id=call.answer_id, call_json=call.body)
    return answer(call, await call.desk.slots.run(ask))


async def routes(request: Request) -> Response:
    """Return the site where each waiting job starts now, and why."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await ROUTE.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.route_jobs, body, caller, answer_id=call.answer_id)
    return answer(call, await call.desk.slots.run(ask))


async def plan(request: Request) -> Response:
    """Return which jobs run now, on which GPUs and at which clock."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await PLAN.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.plan_jobs, body, caller, answer_id=call.answer_id)
    return answer(call, await call.desk.slots.run(ask))


async def hold(request: Request) -> Response:
    """Return for each job whether to start it now or until when to hold it."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await HOLD.of(call)
    call.rows = _counted(call, len(body.jobs))
    ask = partial(call.service.hold_jobs, body, caller, answer_id=call.answer_id)
    return answer(call, await call.desk.slots.run(ask))


async def recent(request: Request) -> Response:
    """Return the newest logged recommendations."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    asked = asked_for(request)
    return json_response(await call.desk.slots.run(partial(call.service.recent_recommendations, caller, **asked)))


def _counted(call: Call, jobs: int) -> int:
    limit = call.desk.settings.rows_limit
    if jobs > limit:
        raise BadRequest(f"jobs: {jobs} jobs, expected at most {limit}")
    return jobs


def answer(call: Call, answered: Answered) -> Response:
    """Return an answer as a response; count it in the metrics and name its models in the access log."""
    call.models = answered.models
    call.desk.metrics.answered(answered)
    return Response(answered.body, media_type="application/json")


async def explanations(request: Request) -> Response:
    """Return how much each feature adds to the predicted run time of one job."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await EXPLAIN.of(call)
    call.rows = 1
    ask = partial(call.service.explain_job, body, caller)
    return answer(call, await call.desk.slots.run(ask))


async def what_ifs(request: Request) -> Response:
    """Predict the run time of one job for several amounts of one resource."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    body = await WHAT_IF.of(call)
    call.rows = 1
    ask = partial(call.service.what_if, body, caller)
    return answer(call, await call.desk.slots.run(ask))


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
    Operation(
        method="POST", path="/v1/reservations", endpoint=reservations, tag=TAG,
        summary="What to reserve for each running job, and why", body=ReserveBody, answer=ReserveAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/placements", endpoint=placements, tag=TAG,
        summary="Where each waiting job starts, or why it waits", body=ClusterBody, answer=PlaceAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/explain-pending", endpoint=explain_pending, tag=TAG,
        summary="Why jobs wait, and what would start them", body=PendingBody, answer=PendingAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/route", endpoint=routes, tag=TAG,
        summary="At which site each waiting job starts, and why", body=RouteBody, answer=RouteAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/plan", endpoint=plan, tag=TAG,
        summary="Which jobs run now on what: within a carbon budget, or at least cost", body=PlanBody,
        answer=PlanAnswer, faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/hold", endpoint=hold, tag=TAG,
        summary="Whether to start each job now, or until when to hold it", body=HoldBody, answer=HoldAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/explanations", endpoint=explanations, tag=TAG,
        summary="Why a job's predicted run time is what it is", body=ExplainBody, answer=ExplainAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
    Operation(
        method="POST", path="/v1/what-if", endpoint=what_ifs, tag=TAG,
        summary="A job's predicted run time along one resource", body=WhatIfBody, answer=WhatIfAnswer,
        faults=(*CALL, *BODY, *SLOT),
    ),
)  # fmt: skip

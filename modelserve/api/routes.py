"""The routes under /v1, made from the table of calls (`modelserve.contract.calls`).

Predictions for a few jobs, and what is in memory, are computed on the event loop, since handing them to a thread would
take longer. Everything else runs in a thread (`Slots`).
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody, asked_for, in_path
from modelserve.api.calls import Call, call_of
from modelserve.api.operations import BODY, CALL, SLOT, Operation
from modelserve.api.problems import Refusal
from modelserve.calls.context import Answered
from modelserve.contract.calls import CALLS, FEEDBACK, CallShape
from modelserve.errors import BadRequest
from modelserve.service import DECISIONS


def endpoint_of(of: CallShape[Any]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a call: check the scope, read the body and parameters, run the function, respond."""
    body_of = None if of.body is None else JsonBody(of.body, bounded=of.fail_fast)
    decides = of.function in DECISIONS

    async def endpoint(request: Request) -> Response:
        call = call_of(request)
        caller = call.allowed(of.scope)
        if body_of is None:
            ask = partial(getattr(call.desk.service, of.function), caller, **_parameters(request, of))
            return respond(call, ask() if of.in_memory else await call.desk.slots.run(ask))
        body = await body_of.of(call)
        if of.jobs:
            call.rows = _counted(call, len(of.jobs_of(body)), of.jobs)
        if decides:
            ask = partial(call.desk.service.decide, of, body, caller, answer_id=call.answer_id, call_json=call.body)
        else:
            ask = partial(getattr(call.desk.service, of.function), body, caller)
        found = ask() if 0 < call.rows <= of.at_once else await call.desk.slots.run(ask)
        if of is FEEDBACK:
            _count_reports(call, body, found)
        return respond(call, found)

    return endpoint


def respond(call: Call, found: Answered | BaseModel) -> Response:
    """Return an answer as a response; count a decision in the metrics, and name its models in the access log."""
    if isinstance(found, BaseModel):
        return Response(found.model_dump_json(), media_type="application/json")
    call.models = found.models
    call.desk.metrics.answered(found)
    return Response(found.body, media_type="application/json")


def _parameters(request: Request, of: CallShape[Any]) -> dict[str, str]:
    required = tuple(each.name for each in of.parameters if each.required)
    found = asked_for(request, required=required)
    for each in of.parameters:
        if each.place == "path":
            found[each.name] = in_path(request, each.name) if of.slashes else request.path_params[each.name]
        elif each.among and found.get(each.name, each.among[0]) not in each.among:
            field, expected = f"query.{each.name}", f"one of {', '.join(each.among)}"
            raise Refusal(422, f"{field}: expected {expected}", faults=[{"field": field, "expected": expected}])
    return found


def _counted(call: Call, rows: int, field: str) -> int:
    limit = call.desk.settings.rows_limit
    if rows > limit:
        raise BadRequest(f"{field}: {rows} {'jobs' if field == 'jobs' else 'rows'}, expected at most {limit}")
    return rows


def _count_reports(call: Call, body: Any, taken: Any) -> None:  # Any: of a feedback call
    outcomes = Counter(
        row.outcome if result.status == "accepted" else str(result.status)
        for row, result in zip(body.feedback, taken.results, strict=True)
    )
    for outcome, count in outcomes.items():
        call.desk.metrics.feedback.labels(outcome).inc(count)
    for trust, count in Counter(each.trust for each in taken.results if each.trust is not None).items():
        call.desk.metrics.trust.labels(trust).inc(count)


OPERATIONS: Final = tuple(
    Operation(
        method=of.method,
        path=of.path,
        endpoint=endpoint_of(of),
        summary=of.summary,
        tag=of.tag,
        body=of.body,
        answer=of.answer,
        faults=(
            *CALL,
            *(() if of.body is None else BODY),
            *((404,) if "{" in of.path else ()),
            *(() if of.in_memory else SLOT),
        ),
        parameters=of.parameters,
        slashes=of.slashes,
    )
    for of in CALLS
)

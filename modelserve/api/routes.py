"""Operations of the HTTP interface, described in the OpenAPI document; those under /v1 come from a table.

An endpoint takes the request and returns the response; FastAPI's dependency solving and validation are not used.
Predictions for a few jobs, and answers from memory, are computed on the event loop; passing them to a thread takes
longer. Everything else runs in a thread (`Slots`).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody, parameters_of
from modelserve.api.calls import Call, call_of
from modelserve.api.problems import Problem
from modelserve.calls.context import Answered
from modelserve.contract.calls import CALLS, FEEDBACK, CallShape, Parameter
from modelserve.errors import BadRequest
from modelserve.service import DECISIONS

Schema = dict[str, Any]  # Any: a JSON schema, or a part of the OpenAPI document
Shape = tuple[type[BaseModel], Literal["validation", "serialization"]]

REF: Final = "#/components/schemas/{model}"
JSON: Final = "application/json"

OPEN_CALL: Final = (500,)
"""Error statuses of a call that needs no token."""
CALL: Final = (401, 403, 429, 500)
"""Error statuses of a call that needs a token."""
BODY: Final = (400, 408, 413, 415, 422)
"""Further error statuses of a call with a body."""
SLOT: Final = (503,)
"""Further error status of a call that runs in a thread (`Slots`)."""

WHY: Final[Mapping[int, str]] = {
    400: "The body is no JSON; outside /v1 also: a field or parameter is not what was expected.",
    401: "No token, or one that is not known.",
    403: "The token does not reach that far.",
    404: "There is no such thing within reach.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of a type that is not taken.",
    422: "A field or parameter is not what was expected.",
    429: "Too many calls of this token, or of this address without a known one; Retry-After says when to come again.",
    500: "The service failed; its log says why under the request id.",
    503: "Too busy, too slow, or not ready; Retry-After says when to come again.",
}

HEADERS: Final[Mapping[int, str]] = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}
"""By status: the header that every refusal with this status has."""


class OipError(BaseModel):
    """The error response of the Open Inference Protocol."""

    error: str


def described(parameter: Parameter) -> Schema:
    """Return a parameter's description in the OpenAPI document."""
    schema: Schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000]*$"}
    if parameter.place == "header":
        schema = {"type": "string"}
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": schema,
    }


EVERYWHERE: Final = (
    Parameter(
        name="X-Request-Id",
        description="Names the call in the log and in the answer's header of the same name, if it is 1 to 64 of "
        "A-Z a-z 0-9 . _ -; else the service makes a name.",
        place="header",
    ),
)
"""Headers that every call accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the HTTP interface: a method of a path.

    `answer` is the model of the response, or its media type if it is not JSON. `faults` are the statuses of refusals,
    `error` is their model. `not_ready` is the model of a response with status
    503 that is no refusal. With `any_query`, unknown parameters are ignored.
    """

    method: Literal["GET", "POST"]
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    summary: str
    tag: str
    answer: type[BaseModel] | str
    faults: Sequence[int]
    body: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    error: type[BaseModel] = Problem
    not_ready: type[BaseModel] | None = None
    needs_token: bool = True
    any_query: bool = False

    @property
    def refused_query(self) -> int:
        """Status of the refusal of an invalid parameter: 422 under `/v1`, 400 in the other protocols."""
        return 422 if self.error is Problem else 400

    def strict_endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint, wrapped in a check of its parameters unless `any_query`.

        After it, `request.path_params` has those of the query, too.
        """
        if self.any_query:
            return self.endpoint

        async def checked(request: Request) -> Response:
            if self.parameters or request.scope["query_string"]:
                found = parameters_of(request, self.parameters, status=self.refused_query)
                request.scope["path_params"] = found
            return await self.endpoint(request)

        return checked

    def models(self) -> list[Shape]:
        """Return the Pydantic models whose schemas the OpenAPI document needs for this operation."""
        answers = [each for each in (self.answer, self.error, self.not_ready) if isinstance(each, type)]
        return [(each, "serialization") for each in answers] + (
            [] if self.body is None else [(self.body, "validation")]
        )


class PlainRoute(APIRoute):
    """A route that calls its endpoint directly, without FastAPI's dependency solving and serialisation."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint unchanged."""
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def add_operations(app: FastAPI, operations: Sequence[Operation]) -> None:
    """Add the operations to an application and to its OpenAPI document."""
    refs, components = schemas_of(frozenset(each for o in operations for each in o.models()))
    for operation in operations:
        app.router.add_api_route(
            operation.path,
            operation.strict_endpoint(),
            methods=[operation.method],
            summary=operation.summary,
            tags=[operation.tag],
            operation_id=f"{operation.method.lower()}_{operation.path.strip('/').replace('/', '_')}",
            responses=_responses(operation, refs),
            openapi_extra=_extra(operation, refs),
            response_model=None,
            response_class=Response,
            route_class_override=PlainRoute,
        )
    generated = app.openapi

    def openapi() -> Schema:
        document = generated()
        document["components"] = {
            "schemas": components["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        }
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's manual says


@cache
def schemas_of(models: frozenset[Shape]) -> tuple[Mapping[Shape, Schema], Schema]:
    """Return references to the models' JSON schemas, and the schemas; cached, since they take a quarter second."""
    ordered = sorted(models, key=lambda each: (each[0].__name__, each[1]))
    return models_json_schema(ordered, ref_template=REF)  # type: ignore[return-value]  # also for dataclasses


def methods_of(operations: Iterable[Operation]) -> dict[str, str]:
    """Return the methods of each path as the value of an `Allow` header, with HEAD wherever there is GET."""
    found: dict[str, list[str]] = {}
    for operation in operations:
        methods = ("GET", "HEAD") if operation.method == "GET" else (operation.method,)
        found.setdefault(operation.path, []).extend(methods)
    return {path: ", ".join(sorted(methods)) for path, methods in found.items()}


def _extra(operation: Operation, refs: Mapping[Any, Schema]) -> Schema:
    extra: Schema = {"parameters": [described(each) for each in (*operation.parameters, *EVERYWHERE)]}
    if operation.needs_token:
        extra["security"] = [{"token": []}]
    if operation.body is not None:
        extra["requestBody"] = {"required": True, "content": {JSON: {"schema": refs[operation.body, "validation"]}}}
    return extra


def _responses(operation: Operation, refs: Mapping[Any, Schema]) -> dict[int | str, Schema]:
    answer = operation.answer
    kind, schema = (answer, {"type": "string"}) if isinstance(answer, str) else (JSON, refs[answer, "serialization"])
    responses: dict[int | str, Schema] = {200: {"description": "The answer.", "content": {kind: {"schema": schema}}}}
    error_kind = "application/problem+json" if operation.error is Problem else JSON
    of_query = () if operation.any_query else (operation.refused_query,)
    for status in sorted({*operation.faults, *of_query}):
        shown: Schema = {
            "description": WHY[status],
            "content": {error_kind: {"schema": refs[operation.error, "serialization"]}},
        }
        if status in HEADERS:
            shown["headers"] = {HEADERS[status]: {"required": True, "schema": {"type": "string"}}}
        responses[status] = shown
    if operation.not_ready is not None:
        responses[503] = {
            "description": HTTPStatus(503).phrase,
            "content": {JSON: {"schema": refs[operation.not_ready, "serialization"]}},
        }
    return responses


def endpoint_of(of: CallShape[Any]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a call: check the scope, read the body and parameters, run the function, respond."""
    body_of = None if of.body is None else JsonBody(of.body, bounded=of.fail_fast)
    decides = of.function in DECISIONS

    async def endpoint(request: Request) -> Response:
        call = call_of(request)
        caller = call.allowed(of.scope)
        if body_of is None:
            ask = partial(getattr(call.desk.service, of.function), caller, **request.path_params)
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


def respond(call: Call, found: Answered | BaseModel, *, exclude_none: bool = False) -> Response:
    """Return an answer as a response; count a decision in the metrics, and name its models in the access log."""
    if isinstance(found, BaseModel):
        return Response(found.model_dump_json(exclude_none=exclude_none), media_type="application/json")
    call.models = found.models
    call.desk.metrics.answered(found)
    return Response(found.body, media_type="application/json")


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
    )
    for of in CALLS
)

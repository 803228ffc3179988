"""MLflow's scoring server: `/ping`, `/version` and `/invocations`, with MLflow's own shape of errors.

Answers are one record a job, in the columns of the model's signature.
"""

from functools import partial
from importlib.metadata import version
from typing import Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody, check_plain, take
from modelserve.api.calls import Call, call_of
from modelserve.api.health import readiness
from modelserve.api.operations import CALL, OPEN_CALL, SLOT, MlflowError, Operation, Parameter
from modelserve.api.problems import Refusal
from modelserve.api.queries import asked_for
from modelserve.api.scoring_formats import Columns, InvocationBody, columns_of, columns_of_csv
from modelserve.callers import Scope
from modelserve.contract.writing import written
from modelserve.errors import BadRequest

TAG: Final = "MLflow scoring"
CSV: Final = b"text/csv"

INVOKE: Final = JsonBody(InvocationBody, fault_status=400)


class Predictions(BaseModel):
    """One record a job: `run_s_p50, run_s_p90` of a run-time model, `used_*` of a usage model; null where unknown."""

    predictions: list[dict[str, float | None]]


async def ping(request: Request) -> Response:
    """Say whether a model serves, as MLflow's server does."""
    state = readiness(call_of(request), draining=request.app.state.draining)
    if state.status != "ready":
        raise Refusal(503, f"not ready: {state.status}")
    return Response("\n", media_type="text/plain")


async def version_text(_: Request) -> Response:
    """Say which version of taut answers."""
    return Response(version("taut"), media_type="text/plain")


async def invocations(request: Request) -> Response:
    """Ask a model about jobs, in any of MLflow's formats."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    name = asked_for(request, status=400).get("model")
    columns, named = await _read(call)
    call.rows = len(next(iter(columns.values())))
    if call.rows > call.desk.settings.rows_limit:
        raise Refusal(400, f"{call.rows} rows, expected at most {call.desk.settings.rows_limit}")
    try:
        model = call.service.model_named(caller, name or named)
        scores = await call.desk.slots.run(
            partial(call.service.score, model, columns, caller, answer_id=call.answer_id)
        )
    except BadRequest as error:
        raise Refusal(400, str(error)) from error
    call.models = scores.answered.models
    call.desk.metrics.answered(scores.answered)
    names = list(scores.columns)
    records = [dict(zip(names, row, strict=True)) for row in zip(*scores.columns.values(), strict=True)]
    return Response(written({"predictions": records}), media_type="application/json")


async def _read(call: Call) -> tuple[Columns, str | None]:
    kind = call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind == CSV:
        check_plain(call)
        return await call.desk.slots.run(partial(columns_of_csv, await take(call))), None
    body = await INVOKE.of(call)
    named = (body.params or {}).get("model")
    if named is not None and not isinstance(named, str):
        raise Refusal(400, "params.model: no text, expected the name of a model")
    return columns_of(body), named


OPERATIONS: Final = (
    Operation(
        method="GET", path="/ping", endpoint=ping, summary="Whether a model serves", tag=TAG,
        answer="text/plain", faults=(*OPEN_CALL, 503), needs_token=False,
    ),
    Operation(
        method="GET", path="/version", endpoint=version_text, summary="Which version answers", tag=TAG,
        answer="text/plain", faults=OPEN_CALL, needs_token=False,
    ),
    Operation(
        method="POST", path="/invocations", endpoint=invocations, summary="Ask a model about jobs", tag=TAG,
        body=InvocationBody, other_bodies={"text/csv": {"type": "string"}}, answer=Predictions,
        faults=(*CALL, 400, 404, 408, 413, 415, *SLOT), error=MlflowError,
        parameters=(
            Parameter(name="model", said="The model asked; the only one within reach by default.", place="query"),
        ),
    ),
)  # fmt: skip

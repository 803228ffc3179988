"""Routes of MLflow's scoring protocol: `/ping`, `/version` and `/invocations`, with errors in MLflow's format.

A response has one record for each job, with the output columns of the model's signature. Added by `modelserve.api.app`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody, asked_for, check_plain, take
from modelserve.api.calls import Call, call_of
from modelserve.api.health import readiness
from modelserve.api.operations import CALL, OPEN_CALL, SLOT, MlflowError, Operation
from modelserve.api.problems import Refusal
from modelserve.contract.calls import Parameter
from modelserve.contract.writing import written
from modelserve.errors import BadRequest
from modelserve.scopes import Scope

Value = str | int | float | bool | None
Record = dict[str, Value]
Columns = dict[str, list[Value]]

FORMATS: Final = ("dataframe_split", "dataframe_records", "instances", "inputs")
ROWS: Final = 10_000

Rows = Annotated[list[Record], Field(min_length=1, max_length=ROWS, fail_fast=True)]


class Split(BaseModel):
    """A data frame: the names of its columns, and its rows."""

    model_config = ConfigDict(extra="forbid")

    columns: list[str]
    data: Annotated[list[list[Value]], Field(min_length=1, max_length=ROWS, fail_fast=True)]
    index: list[Any] | None = None  # Any: index labels of the data frame


class InvocationBody(BaseModel):
    """A scoring call: jobs in one of MLflow's formats; `params.model` or the query names the model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"oneOf": [{"required": [name]} for name in FORMATS]})

    dataframe_split: Split | None = None
    dataframe_records: Rows | None = None
    instances: Rows | None = None
    inputs: dict[str, list[Value] | Value] | None = None
    params: dict[str, Any] | None = None  # Any: MLflow does not define the values


def columns_of(body: InvocationBody) -> Columns:
    """Return the jobs of a scoring call as columns.

    Raises
    ------
    Refusal
        The body is in none of MLflow's formats or in several, or its columns differ in length.
    """
    given = [name for name in FORMATS if getattr(body, name) is not None]
    if len(given) != 1:
        raise Refusal(400, f"found {given or 'none of the formats'}, expected exactly one of {', '.join(FORMATS)}")
    if body.dataframe_split is not None:
        split = body.dataframe_split
        return _from_rows(split.columns, split.data)
    if body.inputs is not None:
        columns = {name: value if isinstance(value, list) else [value] for name, value in body.inputs.items()}
        return _equal(columns)
    records = body.dataframe_records or body.instances or []
    names = list(dict.fromkeys(name for record in records for name in record))
    return _equal({name: [record.get(name) for record in records] for name in names})


def columns_of_csv(data: bytes) -> Columns:
    """Return the columns of a CSV with a header; an empty field is null.

    Raises
    ------
    Refusal
        The data is not a valid CSV with a header and at least one row.
    """
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refusal(400, f"the body is not valid CSV: {error}"[:200]) from error
    if len(rows) < 2:
        raise Refusal(400, f"{len(rows)} lines, expected a header and at least one row")
    return _from_rows(rows[0], [[field or None for field in row] for row in rows[1:] if row])


def _from_rows(names: Sequence[str], rows: Sequence[Sequence[Value]]) -> Columns:
    if len(set(names)) != len(names):
        raise Refusal(400, "a column is repeated, expected each once")
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise Refusal(400, f"row {number}: {len(row)} values, expected {len(names)}, one a column")
    return _equal({name: [row[i] for row in rows] for i, name in enumerate(names)})


def _equal(columns: Mapping[str, list[Value]]) -> Columns:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise Refusal(
            400, f"columns of {sorted(lengths) or 'no'} rows, expected at least one column, all of one length"
        )
    if not 1 <= (count := lengths.pop()) <= ROWS:
        raise Refusal(400, f"{count} rows, expected 1 to {ROWS}")
    return dict(columns)


TAG: Final = "MLflow scoring"
CSV: Final = b"text/csv"

INVOKE: Final = JsonBody(InvocationBody, fault_status=400)


class Predictions(BaseModel):
    """One record per job: `run_s_p50, run_s_p90` of a run-time model, `used_*` of a usage model; null if unknown."""

    predictions: list[dict[str, float | None]]


async def ping(request: Request) -> Response:
    """Reply with 200 if at least one model is loaded, otherwise 503, as MLflow's server does."""
    state = readiness(call_of(request), draining=request.app.state.draining)
    if state.status != "ready":
        raise Refusal(503, f"not ready: {state.status}")
    return Response("\n", media_type="text/plain")


async def version_text(_: Request) -> Response:
    """Return the version of taut."""
    return Response(version("taut"), media_type="text/plain")


async def invocations(request: Request) -> Response:
    """Predict jobs given in any of MLflow's formats with one model."""
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
        raise Refusal(400, "params.model: not a text, expected the name of a model")
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
            Parameter(
                name="model", description="The model asked; the only one within reach by default.", place="query"
            ),
        ),
    ),
)  # fmt: skip

"""The Open Inference Protocol, V2: health, metadata and `infer`, with errors in the protocol's format.

Each tensor is one column of the model's MLflow signature, one row a job; the values are checked as in `/v1`. The
metadata lists the calls under `/v1`, which the protocol does not define, as `extensions`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody
from modelserve.api.calls import call_of
from modelserve.api.health import check_ready
from modelserve.api.problems import Refusal
from modelserve.api.routes import CALL, OPEN_CALL, SLOT, OipError, Operation, respond
from modelserve.bundle.card import Card
from modelserve.bundle.flavor import INPUTS, OUTPUTS
from modelserve.bundle.served import ServedModel
from modelserve.callers import Caller
from modelserve.contract.calls import CALLS, Parameter
from modelserve.contract.fields import Part
from modelserve.contract.jobs import PredictAnswer, Prediction
from modelserve.contract.requests import PredictBody
from modelserve.errors import NotKnown
from modelserve.scopes import Scope
from modelserve.service import DECISIONS
from modelserve.wrong_values import fault_of
from scheduler_core.errors import PredictorUnavailable

TAG: Final = "Open Inference Protocol"
PLATFORM: Final = "taut_xgboost"
EXTENSIONS: Final = tuple(of.path.removeprefix("/v1/") for of in CALLS if of.function in DECISIONS)
"""Calls of this service under `/v1`, which the protocol does not define; listed in the server's metadata."""

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]
Value = str | int | float | bool | None
Parameters = dict[str, Any]  # Any: the protocol does not define the values

DATATYPE: Final[Mapping[str, Datatype]] = {"datetime": "BYTES", "string": "BYTES", "long": "INT64", "double": "FP64"}
"""The protocol's datatype for each column type of an MLflow signature."""

REQUEST: Final = "req_"
"""Prefix of the columns of the request."""


class InputTensor(Part):
    """One input column: its values in `data`, as a flat list or one list per row; null if unknown."""

    name: str
    shape: list[int] = Field(min_length=1, max_length=2)
    datatype: Datatype
    data: Annotated[list[Value | list[Value]], Field(max_length=10_000, fail_fast=True)]
    parameters: Parameters | None = None


class OutputAsked(Part):
    """One output column that the call requests."""

    name: str
    parameters: Parameters | None = None


class InferBody(Part):
    """The body of an inference call: one tensor per column."""

    id: str | None = Field(default=None, max_length=256)
    parameters: Parameters | None = None
    inputs: list[InputTensor] = Field(min_length=1)
    outputs: list[OutputAsked] | None = None


class OutputTensor(BaseModel):
    """One output column."""

    name: str
    shape: list[int]
    datatype: Datatype
    data: list[float | None]


class State(BaseModel):
    """The reply that a server lives, or that it or a model is ready."""

    name: str | None = None
    live: bool | None = None
    ready: bool | None = None


class ServerMetadata(BaseModel):
    """Name, version and protocol extensions of the server."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """An input or output tensor of a model; -1 in `shape` means any number of jobs."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(BaseModel):
    """Versions, inputs and outputs of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Inferred(BaseModel):
    """The response to an inference call; `id` is that of the call, or a new one if the call has none."""

    model_name: str
    model_version: str
    id: str
    parameters: Parameters
    outputs: list[OutputTensor]


INFER: Final = JsonBody(InferBody, fault_status=400)


async def live(request: Request) -> Response:
    """Report that the server is alive."""
    return _state(request, live=True)


async def ready(request: Request) -> Response:
    """Report whether the server is ready."""
    check_ready(request)
    return _state(request, ready=True)


def _state(request: Request, **fields: Any) -> Response:  # Any: those of `State`
    return respond(call_of(request), State(**fields), exclude_none=True)


async def server(request: Request) -> Response:
    """Return the server's name, version and extensions."""
    call_of(request).allowed(Scope.PREDICT)
    return respond(call_of(request), ServerMetadata(name="taut", version=version("taut"), extensions=list(EXTENSIONS)))


async def model_metadata(request: Request) -> Response:
    """Return a model's name, version, inputs and outputs."""
    model, _ = _model(request)
    card = model.bundle.card
    return respond(
        call_of(request),
        ModelMetadata(
            name=card.name,
            versions=[model.bundle.version or ""],
            platform=PLATFORM,
            inputs=[TensorMetadata(name=n, datatype=DATATYPE[kind], shape=[-1, 1]) for n, kind in INPUTS.items()],
            outputs=[TensorMetadata(name=n, datatype="FP64", shape=[-1, 1]) for n in OUTPUTS[card.kind]],
        ),
    )


async def model_ready(request: Request) -> Response:
    """Report that a model is ready; a model that is not loaded is refused with 404."""
    model, _ = _model(request)
    return _state(request, name=model.bundle.card.name, ready=True)


async def infer(request: Request) -> Response:
    """Predict the jobs in a call's tensors with one model."""
    call = call_of(request)
    model, caller = _model(request)
    card = model.bundle.card
    body = await INFER.of(call)
    refuse_binary(body, call.headers)
    asked = body_of(body, card, rows_limit=call.desk.settings.rows_limit)
    call.rows = len(asked.jobs)
    answered = await call.desk.slots.run(
        partial(call.desk.service.score, model, asked, caller, answer_id=call.answer_id)
    )
    predictions = PredictAnswer.model_validate_json(answered.body).predictions
    failed = next((each for each in predictions if each.reason is not None), None)
    if failed is not None:
        raise PredictorUnavailable(failed.note or f"{model.reference} cannot answer")
    call.models = answered.models
    call.desk.metrics.answered(answered)
    return respond(
        call_of(request),
        Inferred(
            model_name=card.name,
            model_version=model.bundle.version or "",
            id=call.answer_id if body.id is None else body.id,
            parameters={"answer_id": call.answer_id},
            outputs=tensors_of(predictions, card, body.outputs),
        ),
    )


def _model(request: Request) -> tuple[ServedModel, Caller]:
    """Return the champion that the path names, and the caller, who may use it."""
    call = call_of(request)
    caller = call.allowed(Scope.PREDICT)
    name, version = request.path_params["model"], request.path_params.get("version")
    model = call.desk.service.models.current.champions.get(name)
    if model is None or not caller.reaches(model.bundle.card.trace):
        raise NotKnown(f"model {name[:120]!r} does not serve; expected one that /v1/models lists")
    if version is not None and version != model.bundle.version:
        raise NotKnown(f"model {name} serves version {model.bundle.version}, found {version[:20]!r}")
    return model, caller


def body_of(body: InferBody, card: Card, *, rows_limit: int) -> PredictBody:
    """Return the input tensors of a call as a prediction call for one model; absent and empty values are left out."""
    columns: dict[str, list[Value]] = {}
    for tensor in body.inputs:
        if tensor.name in columns:
            raise _wrong(tensor.name, "there twice", "one tensor a column")
        columns[tensor.name] = _column(tensor)
    lengths = {name: len(values) for name, values in columns.items()}
    first, count = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != count:
            raise _wrong(name, f"{length} rows", f"{count}, as many as {first} has")
    if not 1 <= count <= rows_limit:
        raise _wrong(first, f"{count} rows", f"1 to {rows_limit}")
    jobs: list[dict[str, object]] = []
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row = {name: value for name, value in zip(columns, values, strict=True) if value not in (None, "")}
        request = {name.removeprefix(REQUEST): row.pop(name) for name in list(row) if name.startswith(REQUEST)}
        if isinstance(at := row.get("submit_ts"), str):
            row["submit_ts"] = _in_utc(at.strip())
        jobs.append({**row, "job_id": str(i), "task_type": card.task_type, "request": request})
    outputs = ("run_time" if card.kind == "runtime" else "peak_use",)
    try:
        return PredictBody.model_validate({"jobs": tuple(jobs), "trace": card.trace, "outputs": outputs}, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        _, place, *path = fault["loc"]
        column = f"{REQUEST}{path[-1]}" if path[0] == "request" else str(path[0])
        found = repr(columns[column][int(place)])[:60]
        raise Refusal(400, f"column {column!r}, row {place}: {fault_of(fault)[:200]}, found {found}") from error


def refuse_binary(body: InferBody, headers: Mapping[bytes, bytes]) -> None:
    """Raise `Refusal` if a call uses the protocol's binary extension, which is not supported."""
    given = [each.parameters or {} for each in (body, *body.inputs, *(body.outputs or ()))]
    names = ("binary_data_size", "binary_data", "binary_data_output")
    if any(each.get(name) for each in given for name in names) or b"inference-header-content-length" in headers:
        raise Refusal(400, "binary tensor data is not supported, expected data as JSON")


def _column(tensor: InputTensor) -> list[Value]:
    if tensor.name not in INPUTS:
        raise _wrong(tensor.name, "no such input", f"some of {', '.join(INPUTS)}")
    if len(tensor.shape) == 2 and tensor.shape[1] != 1:
        raise _wrong(tensor.name, f"shape {tensor.shape}", "[n] or [n, 1]")
    values: list[Value] = []
    for row in tensor.data:
        values.extend(row if isinstance(row, list) else (row,))
    if tensor.shape[0] != len(values):
        raise _wrong(tensor.name, f"{len(values)} values", f"{tensor.shape[0]}, as its shape says")
    return values


def tensors_of(
    predictions: Sequence[Prediction], card: Card, asked: Sequence[OutputAsked] | None
) -> list[OutputTensor]:
    """Return the predictions of one model as the requested output columns; all columns if none are requested."""
    rows = [_values(each) for each in predictions]
    columns = dict(zip(OUTPUTS[card.kind], zip(*rows, strict=True), strict=True))
    names = list(columns) if not asked else [each.name for each in asked]
    for name in names:
        if name not in columns:
            raise Refusal(400, f"output {name[:60]!r}: no such output, expected some of {', '.join(columns)}")
    return [OutputTensor(name=name, shape=[len(rows), 1], datatype="FP64", data=list(columns[name])) for name in names]


def _values(prediction: Prediction) -> tuple[float | None, ...]:
    time, use = prediction.run_time_s, prediction.peak_use
    if time is not None:
        return time.p50, time.p90
    return (None,) * 4 if use is None else (use.cpu_cores, use.mem_gib, use.gpus, use.gpu_mem_gib)


def _in_utc(at: str) -> str:
    """Return a time as text with a time zone; a time without one is in UTC, as in MLflow."""
    date, _, time = at.replace(" ", "T").partition("T")
    if not time:
        return f"{date}T00:00:00Z"
    return at if time[-1] in "Zz" or "+" in time or "-" in time else f"{date}T{time}Z"


def _wrong(name: str, found: str, expected: str) -> Refusal:
    return Refusal(400, f"input {name[:60]!r}: {found}, expected {expected}")


MODEL: Final = Parameter(name="model", description="Registered name of a model, as `runtime.pai.ctr`.")
VERSION: Final = Parameter(name="version", description="The version that serves.")
PATHS: Final = {
    "/v2/models/{model}": (MODEL,),
    "/v2/models/{model}/versions/{version}": (MODEL, VERSION),
}

get = partial(Operation, method="GET", tag=TAG, error=OipError)
OPERATIONS: Final = (
    get(
        path="/v2/health/live", endpoint=live, summary="Whether the server lives", answer=State, faults=OPEN_CALL,
        needs_token=False,
    ),
    get(
        path="/v2/health/ready", endpoint=ready, summary="Whether the server is ready", answer=State,
        faults=(*OPEN_CALL, 503), needs_token=False,
    ),
    get(path="/v2", endpoint=server, summary="What the server is", answer=ServerMetadata, faults=CALL),
    *(
        operation
        for path, named in PATHS.items()
        for operation in (
            get(
                path=path, endpoint=model_metadata, summary="What a model takes and gives", answer=ModelMetadata,
                faults=(*CALL, 404), parameters=named,
            ),
            get(
                path=f"{path}/ready", endpoint=model_ready, summary="Whether a model is ready", answer=State,
                faults=(*CALL, 404), parameters=named,
            ),
            Operation(
                method="POST", path=f"{path}/infer", endpoint=infer, summary="Ask a model about jobs", tag=TAG,
                body=InferBody, answer=Inferred, faults=(*CALL, 400, 404, 408, 413, 415, *SLOT), error=OipError,
                parameters=named,
            ),
        )
    ),
)  # fmt: skip

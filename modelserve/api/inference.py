"""Routes of the Open Inference Protocol, V2: health, metadata and `infer`, with errors in the protocol's format.

Models are addressed by their registered names. Each tensor is one column of the model's MLflow signature. The metadata
lists the calls under `/v1`, which the protocol does not define, as `extensions`. Added by `modelserve.api.app`.
"""

from functools import partial
from importlib.metadata import version
from typing import Final, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from modelserve.api.bodies import JsonBody
from modelserve.api.calls import call_of
from modelserve.api.health import check_ready
from modelserve.api.operations import CALL, OPEN_CALL, SLOT, OipError, Operation
from modelserve.api.tensors import (
    DATATYPE,
    Datatype,
    InferBody,
    OutputTensor,
    Parameters,
    body_of,
    refuse_binary,
    tensors_of,
)
from modelserve.bundle.flavor import INPUTS, OUTPUTS
from modelserve.callers import Caller
from modelserve.contract.calls import CALLS, Parameter
from modelserve.contract.jobs import PredictAnswer
from modelserve.errors import NotKnown
from modelserve.loading.served import ServedModel
from modelserve.scopes import Scope
from modelserve.service import DECISIONS
from scheduler_core.errors import PredictorUnavailable

TAG: Final = "Open Inference Protocol"
PLATFORM: Final = "taut_xgboost"
EXTENSIONS: Final = tuple(of.path.removeprefix("/v1/") for of in CALLS if of.function in DECISIONS)
"""Calls of this service under `/v1`, which the protocol does not define; listed in the server's metadata."""

INFER: Final = JsonBody(InferBody, fault_status=400)


class Live(BaseModel):
    """The reply of a running server."""

    live: Literal[True] = True


class ServerReady(BaseModel):
    """The reply of a server that is ready."""

    ready: Literal[True] = True


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


class ModelReady(BaseModel):
    """The reply for a model that is ready."""

    name: str
    ready: Literal[True] = True


class Inferred(BaseModel):
    """The response to an inference call; `id` is that of the call, or a new one if the call has none."""

    model_name: str
    model_version: str
    id: str
    parameters: Parameters
    outputs: list[OutputTensor]


async def live(_: Request) -> Response:
    """Report that the server is alive."""
    return _said(Live())


async def ready(request: Request) -> Response:
    """Report whether the server is ready."""
    check_ready(request)
    return _said(ServerReady())


async def server(request: Request) -> Response:
    """Return the server's name, version and extensions."""
    call_of(request).allowed(Scope.PREDICT)
    return _said(ServerMetadata(name="taut", version=version("taut"), extensions=list(EXTENSIONS)))


async def model_metadata(request: Request) -> Response:
    """Return a model's name, version, inputs and outputs."""
    model, _ = _model(request)
    card = model.bundle.card
    return _said(
        ModelMetadata(
            name=card.name,
            versions=[model.bundle.version or ""],
            platform=PLATFORM,
            inputs=[TensorMetadata(name=n, datatype=DATATYPE[kind], shape=[-1, 1]) for n, kind in INPUTS.items()],
            outputs=[TensorMetadata(name=n, datatype="FP64", shape=[-1, 1]) for n in OUTPUTS[card.kind]],
        )
    )


async def model_ready(request: Request) -> Response:
    """Report that a model is ready; a model that is not loaded is refused with 404."""
    model, _ = _model(request)
    return _said(ModelReady(name=model.bundle.card.name))


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
    return _said(
        Inferred(
            model_name=card.name,
            model_version=model.bundle.version or "",
            id=call.answer_id if body.id is None else body.id,
            parameters={"answer_id": call.answer_id},
            outputs=tensors_of(predictions, card, body.outputs),
        )
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


def _said(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")


MODEL: Final = Parameter(name="model", description="Registered name of a model, as `runtime.pai.ctr`.")
VERSION: Final = Parameter(name="version", description="The version that serves.")
PATHS: Final = {
    "/v2/models/{model}": (MODEL,),
    "/v2/models/{model}/versions/{version}": (MODEL, VERSION),
}

get = partial(Operation, method="GET", tag=TAG, error=OipError)
OPERATIONS: Final = (
    get(
        path="/v2/health/live", endpoint=live, summary="Whether the server lives", answer=Live, faults=OPEN_CALL,
        needs_token=False,
    ),
    get(
        path="/v2/health/ready", endpoint=ready, summary="Whether the server is ready", answer=ServerReady,
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
                path=f"{path}/ready", endpoint=model_ready, summary="Whether a model is ready", answer=ModelReady,
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

"""Convert tensors of the Open Inference Protocol to a prediction call and back: one tensor a column, one row a job."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from modelserve.api.problems import Refusal
from modelserve.bundle.card import Card
from modelserve.bundle.flavor import INPUTS, OUTPUTS
from modelserve.contract.fields import Part
from modelserve.contract.jobs import Prediction
from modelserve.contract.requests import PredictBody
from modelserve.wrong_values import fault_of

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]
Value = str | int | float | bool | None
Parameters = dict[str, Any]  # Any: the protocol does not define the values

DATATYPE: Final[Mapping[str, Datatype]] = {"datetime": "BYTES", "string": "BYTES", "long": "INT64", "double": "FP64"}
"""The protocol's datatype for each column type of an MLflow signature."""

TAKEN: Final[Mapping[Datatype, str]] = {"BYTES": "BYTES", "INT64": "INT UINT", "FP64": "FP INT UINT"}
"""Tensor datatypes accepted for each column datatype; `INT` stands for INT8 to INT64, and so on."""

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
    jobs = []
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row = {name: value for name, value in zip(columns, values, strict=True) if value not in (None, "")}
        request = {name.removeprefix(REQUEST): row.pop(name) for name in list(row) if name.startswith(REQUEST)}
        if isinstance(at := row.get("submit_ts"), str):
            row["submit_ts"] = _in_utc(at.strip())
        jobs.append({**row, "job_id": str(i), "task_type": card.task_type, "request": request})
    outputs = ("run_time" if card.kind == "runtime" else "peak_use",)
    try:
        return PredictBody.model_validate({"jobs": jobs, "trace": card.trace, "outputs": outputs})
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
    known = INPUTS.get(tensor.name)
    if known is None:
        raise _wrong(tensor.name, "no such input", f"some of {', '.join(INPUTS)}")
    expected = DATATYPE[known]
    if tensor.datatype.rstrip("0123456789") not in TAKEN[expected].split():
        raise _wrong(tensor.name, tensor.datatype, expected)
    if len(tensor.shape) == 2 and tensor.shape[1] != 1:
        raise _wrong(tensor.name, f"shape {tensor.shape}", "[n] or [n, 1]")
    values: list[Value] = []
    for row in tensor.data:
        values.extend(row if isinstance(row, list) else (row,))
    if tensor.shape[0] != len(values):
        raise _wrong(tensor.name, f"{len(values)} values", f"{tensor.shape[0]}, as its shape says")
    kinds = (str,) if expected == "BYTES" else (int,) if expected == "INT64" else (int, float)
    for value in values:
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise _wrong(tensor.name, repr(value)[:60], f"{tensor.datatype} or null")
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

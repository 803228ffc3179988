"""Convert tensors of the Open Inference Protocol to columns and back: one tensor for each column, one row for each job.

Called by `modelserve.api.inference`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from modelserve.api.problems import Refusal
from modelserve.bundle.flavor import INPUTS

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]
Value = str | int | float | bool | None

DATATYPE: Final[Mapping[str, Datatype]] = {"datetime": "BYTES", "string": "BYTES", "long": "INT64", "double": "FP64"}
"""The protocol's datatype for each column type of an MLflow signature."""

TAKEN: Final[Mapping[Datatype, str]] = {"BYTES": "BYTES", "INT64": "INT UINT", "FP64": "FP INT UINT"}
"""Tensor datatypes accepted for each column datatype; `INT` stands for INT8 to INT64, and so on."""


class InputTensor(BaseModel):
    """One input column: its values in `data`, as a flat list or one list per row; null if unknown."""

    model_config = ConfigDict(extra="forbid")

    name: str
    shape: list[int] = Field(min_length=1, max_length=2)
    datatype: Datatype
    data: Annotated[list[Value | list[Value]], Field(max_length=10_000, fail_fast=True)]
    parameters: dict[str, Any] | None = None  # Any: the protocol does not define the values


class OutputAsked(BaseModel):
    """One output column that the call requests."""

    model_config = ConfigDict(extra="forbid")

    name: str
    parameters: dict[str, Any] | None = None  # Any: the protocol does not define the values


class InferBody(BaseModel):
    """The body of an inference call: one tensor per column."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(default=None, max_length=256)
    parameters: dict[str, Any] | None = None  # Any: the protocol does not define the values
    inputs: list[InputTensor] = Field(min_length=1)
    outputs: list[OutputAsked] | None = None


class OutputTensor(BaseModel):
    """One output column."""

    name: str
    shape: list[int]
    datatype: Datatype
    data: list[float | None]


def columns_of(body: InferBody, *, rows_limit: int) -> dict[str, list[Value]]:
    """Return the input tensors of a call as columns."""
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
    return columns


def refuse_binary(body: InferBody, headers: Mapping[bytes, bytes]) -> None:
    """Raise `Refusal` if a call uses the protocol's binary extension, which is not supported."""
    asked = [*body.inputs, *(body.outputs or ())]
    parameters = [body.parameters or {}, *(each.parameters or {} for each in asked)]
    wanted = any(
        each.get("binary_data_size") or each.get("binary_data") or each.get("binary_data_output") for each in parameters
    )
    if wanted or b"inference-header-content-length" in headers:
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
    columns: Mapping[str, Sequence[float | None]], asked: Sequence[OutputAsked] | None
) -> list[OutputTensor]:
    """Return the requested output columns as tensors; all columns if none are requested."""
    names = list(columns) if not asked else [each.name for each in asked]
    for name in names:
        if name not in columns:
            raise Refusal(400, f"output {name[:60]!r}: no such output, expected some of {', '.join(columns)}")
    return [
        OutputTensor(name=name, shape=[len(columns[name]), 1], datatype="FP64", data=list(columns[name]))
        for name in names
    ]


def _wrong(name: str, found: str, expected: str) -> Refusal:
    return Refusal(400, f"input {name[:60]!r}: {found}, expected {expected}")

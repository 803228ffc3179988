"""The formats that MLflow's scoring server takes, as columns: split, records, instances, inputs and CSV.

No model is asked here, and no data frame is made. Called by `modelserve.api.scoring`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from modelserve.api.problems import Refusal

Value = str | int | float | bool | None
Record = dict[str, Value]
Columns = dict[str, list[Value]]

FORMATS: Final = ("dataframe_split", "dataframe_records", "instances", "inputs")
ROWS: Final = 10_000
CSV_FIELD_LIMIT: Final = 4096

Rows = Annotated[list[Record], Field(min_length=1, max_length=ROWS, fail_fast=True)]


class Split(BaseModel):
    """A data frame: the names of its columns, and its rows."""

    model_config = ConfigDict(extra="forbid")

    columns: list[str]
    data: Annotated[list[list[Value]], Field(min_length=1, max_length=ROWS, fail_fast=True)]
    index: list[Any] | None = None  # whatever numbers or names the frame's rows had


class InvocationBody(BaseModel):
    """A scoring call: jobs in one of MLflow's formats; `params.model` names the model, unless the query does."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"oneOf": [{"required": [name]} for name in FORMATS]})

    dataframe_split: Split | None = None
    dataframe_records: Rows | None = None
    instances: Rows | None = None
    inputs: dict[str, list[Value] | Value] | None = None
    params: dict[str, Any] | None = None  # MLflow leaves their values open


def columns_of(body: InvocationBody) -> Columns:
    """Return the columns of a call.

    Raises
    ------
    Refusal
        It has none of the formats, or more than one, or columns that differ in length.
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
        It is none.
    """
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refusal(400, f"the body is no CSV: {error}"[:200]) from error
    if len(rows) < 2:
        raise Refusal(400, f"{len(rows)} lines, expected a header and at least one row")
    return _from_rows(rows[0], [[field or None for field in row] for row in rows[1:] if row])


def _from_rows(names: Sequence[str], rows: Sequence[Sequence[Value]]) -> Columns:
    if len(set(names)) != len(names):
        raise Refusal(400, "a column there twice, expected each once")
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

"""Scoring calls: one named model predicts jobs that are given as the columns of its MLflow signature.

The columns are converted to a call of `/v1/predictions`, so both calls give the same predictions and log records. No
HTTP here. Called by the service for the Open Inference Protocol.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from modelserve.bundle.flavor import INPUTS, OUTPUTS
from modelserve.callers import Caller, check_jobs
from modelserve.calls.context import Answered
from modelserve.contract.jobs import PredictAnswer, Prediction
from modelserve.contract.requests import OUTPUTS as WANTED
from modelserve.contract.requests import Output, PredictBody
from modelserve.errors import BadRequest, NotKnown
from modelserve.wrong_values import fault_of
from scheduler_core.errors import PredictorUnavailable

if TYPE_CHECKING:
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel

__all__ = ["Columns", "Scores", "body_of", "model_named", "scores_of"]

_REQUEST: Final = "req_"
_WANTED: Final[Mapping[str, Output]] = dict(zip(("runtime", "usage"), WANTED, strict=True))

Columns = Mapping[str, Sequence[object]]
"""Values by column name; columns have equal length, and a missing value is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The predictions of a model, with its version: output columns with one value per job, None if unknown."""

    name: str
    version: str
    columns: Mapping[str, tuple[float | None, ...]]
    answered: Answered


def model_named(snapshot: "Snapshot", caller: Caller, name: str, version: str | None = None) -> "ServedModel":
    """Return the champion with a name.

    Raises
    ------
    NotKnown
        The caller may use no such model, or another version of it serves.
    """
    model = snapshot.champions.get(name)
    if model is None or not caller.reaches(model.bundle.card.trace):
        raise NotKnown(f"model {name[:120]!r} does not serve; expected one that /v1/models lists")
    if version is not None and version != model.bundle.version:
        raise NotKnown(f"model {name} serves version {model.bundle.version}, found {version[:20]!r}")
    return model


def scores_of(model: "ServedModel", answered: Answered) -> Scores:
    """Return the output columns of a prediction call that used one model.

    Raises
    ------
    PredictorUnavailable
        The model could not predict one of the jobs.
    """
    card = model.bundle.card
    predictions = PredictAnswer.model_validate_json(answered.body).predictions
    failed = next((each for each in predictions if each.reason is not None), None)
    if failed is not None:
        raise PredictorUnavailable(failed.note or f"{model.reference} cannot answer")
    rows = [_values(card.kind, each) for each in predictions]
    return Scores(
        name=card.name,
        version=model.bundle.version or "",
        columns=dict(zip(OUTPUTS[card.kind], zip(*rows, strict=True), strict=True)),
        answered=answered,
    )


def body_of(model: "ServedModel", columns: Columns, caller: Caller) -> PredictBody:
    """Return input columns as the body of a prediction call; a missing column gets its default or is null.

    Raises
    ------
    BadRequest
        A column is unknown, or a value is invalid.
    Forbidden
        The caller may not access a job's trace or cluster.
    """
    body = _body(model, columns)
    for i, job in enumerate(body.jobs):
        check_jobs((job,), model.bundle.card.trace, caller, field=f"row {i}")
    return body


def _body(model: "ServedModel", columns: Columns) -> PredictBody:
    unknown = sorted(set(columns) - set(INPUTS))
    if unknown:
        raise BadRequest(f"column {unknown[0][:80]!r}: not known, expected some of {', '.join(INPUTS)}")
    card = model.bundle.card
    jobs = []
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row = {name: value for name, value in zip(columns, values, strict=True) if not _absent(value)}
        request = {name.removeprefix(_REQUEST): row.pop(name) for name in list(row) if name.startswith(_REQUEST)}
        if isinstance(at := row.get("submit_ts"), str):
            row["submit_ts"] = _in_utc(at.strip())
        jobs.append({**row, "job_id": str(i), "task_type": card.task_type, "request": request})
    try:
        return PredictBody.model_validate({"jobs": jobs, "trace": card.trace, "outputs": (_WANTED[card.kind],)})
    except ValidationError as error:
        raise BadRequest(_complaint(error, columns)) from error


def _complaint(error: ValidationError, columns: Columns) -> str:
    """Return a message about the first invalid value, with its column and row, and the number of further ones."""
    first = error.errors(include_url=False, include_input=False)[0]
    _, row, *path = first["loc"]
    column = f"{_REQUEST}{path[-1]}" if path[0] == "request" else str(path[0])
    found = repr(columns[column][int(row)])[:60]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"column {column!r}, row {row}: {fault_of(first)[:200]}, found {found}{more}"


def _values(kind: str, prediction: Prediction) -> tuple[float | None, ...]:
    if kind == "runtime":
        time = prediction.run_time_s
        return (None, None) if time is None else (time.p50, time.p90)
    use = prediction.peak_use
    return (None,) * 4 if use is None else (use.cpu_cores, use.mem_gib, use.gpus, use.gpu_mem_gib)


def _absent(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _in_utc(at: str) -> str:
    """Return a time as text with a time zone; a time without one is in UTC, as in MLflow."""
    date, _, time = at.replace(" ", "T").partition("T")
    if not time:
        return f"{date}T00:00:00Z"
    return at if time[-1] in "Zz" or "+" in time or "-" in time else f"{date}T{time}Z"

"""Refusals: error responses, in the format that the path's protocol prescribes.

The format is problem+json (RFC 9457), and `{"error"}` of the Open Inference Protocol under `/v2`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import Response

from modelserve.errors import BadRequest, BundleError, Forbidden, ModelNotFound, NotKnown, StoreError
from modelserve.wrong_values import fault_of, found_and_expected
from scheduler_core.errors import PredictorUnavailable

RETRY_AFTER_S: Final = 1
SHOWN: Final = 60
"""Maximum number of characters of a value in an error message."""

FAULTS_SHOWN: Final = 20
"""Maximum number of invalid fields that are listed for one body."""

STATUS_OF: Final[Mapping[type[Exception], int]] = {
    BadRequest: 422,
    Forbidden: 403,
    ModelNotFound: 404,
    NotKnown: 404,
    StoreError: 503,
    BundleError: 503,
    PredictorUnavailable: 503,
}
"""HTTP status of each error class; any other error is replied to with 500 and no details."""

_FIELD: Final = re.compile(r"([A-Za-z_][\w.\[\]-]{0,127}): (.+)", re.DOTALL)


Fault = dict[str, str]
"""One invalid field, with the keys of `FaultShown`; the found value is left out if it is a list or an object."""


class FaultShown(BaseModel):
    """One invalid field: its path, what was expected, pydantic's type of the error, and the value found."""

    field: str
    expected: str
    type: str | None = None
    found: str | None = None


class Problem(BaseModel):
    """Problem details of a refused call (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str
    request_id: str
    errors: list[FaultShown] = Field(default_factory=list)


class Refusal(Exception):
    """Raised to refuse a call: the status, detail, invalid fields and headers of the response."""

    def __init__(
        self, status: int, detail: str, *, faults: Sequence[Fault] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.faults = status, detail, tuple(faults)
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("retry-after", str(RETRY_AFTER_S))


def refusal_of(error: Exception) -> Refusal | None:
    """Return the refusal to send for an error, or None if the error is unexpected."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, str(error.detail), headers=error.headers)
    status = next((status for kind, status in STATUS_OF.items() if isinstance(error, kind)), None)
    if status is None:
        return None
    detail = str(error)
    named = _FIELD.fullmatch(detail) if status in (403, 422) else None
    return Refusal(status, detail, faults=[] if named is None else [_fault(named[1], named[2])])


def _fault(field: str, message: str) -> Fault:
    found, expected = found_and_expected(message)
    return {"field": field, "expected": expected} | ({} if found is None else {"found": found[:SHOWN]})


def invalid_body(error: ValidationError, *, status: int = 422) -> Refusal:
    """Return the refusal of a body: 400 if it is not JSON, otherwise `status` and the invalid fields."""
    found = [each for each in error.errors(include_url=False) if not _follows(each, error)]
    if found[0]["type"] == "json_invalid":
        reason = found[0].get("ctx", {}).get("error", "cut short")
        return Refusal(400, f"the body is not valid JSON: {str(reason)[:200]}")
    faults: list[Fault] = []
    for each in found[:FAULTS_SHOWN]:
        field, message = _located(each)
        expected = "a value" if each["type"] == "missing" else found_and_expected(message)[1]
        fault = {"field": field, "expected": expected[:200], "type": each["type"]}
        if each["type"] != "missing" and isinstance(each["input"], str | int | float | bool | None):
            fault["found"] = json.dumps(each["input"])[:SHOWN]
        faults.append(fault)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    field, first = _located(found[0])
    return Refusal(status, f"{field}: {first[:200]}{more}", faults=faults)


def _located(each: ErrorDetails) -> tuple[str, str]:
    """Return an invalid field's path, and the message; a validator of several fields names it in its message."""
    path, message = [str(part)[:SHOWN] for part in each["loc"]], fault_of(each)
    if each["type"] == "extra_forbidden":
        message = f"{message}; /openapi.json lists all fields"
    named = _FIELD.fullmatch(message) if each["type"] == "value_error" else None
    if named is not None:
        return ".".join([*path, named[1]]), named[2]
    return ".".join(path) or "body", message


def _follows(each: ErrorDetails, error: ValidationError) -> bool:
    """Return whether an error reports a list as too short only because some of its items are invalid."""
    short = each["type"] == "too_short"
    return short and any(inner["loc"][: len(each["loc"])] == each["loc"] != inner["loc"] for inner in error.errors())


def refuse(refusal: Refusal, *, path: str, request_id: str) -> Response:
    """Return a refusal as a response: problem+json, or plain JSON on the paths of the Open Inference Protocol."""
    inference = path == "/v2" or path.startswith("/v2/")
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "detail": refusal.detail,
        "instance": path[:200],
        "request_id": request_id,
        "errors": refusal.faults,
    }
    return Response(
        json.dumps({"error": refusal.detail} if inference else problem).encode(),
        status_code=refusal.status,
        headers=refusal.headers,
        media_type="application/json" if inference else "application/problem+json",
    )

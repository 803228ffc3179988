"""Parameters in query and path, read as strictly as bodies: once each, known, and no longer than a name.

No call is answered here. What is known is checked for every operation, values are read by the routes that take any.
"""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request

from modelserve.api.problems import Refusal

LENGTH_LIMIT: Final = 256


def check_known(request: Request, names: Sequence[str], *, status: int = 422) -> None:
    """Check that a call names no parameter in its query but these.

    Raises
    ------
    Refusal
        It does.
    """
    for name in request.query_params:
        if name not in names:
            raise _wrong(status, name, f"one of {', '.join(names)}" if names else "no parameters here")


def asked_for(request: Request, *, required: Sequence[str] = (), status: int = 422) -> dict[str, str]:
    """Return the parameters that a call gives, by name; that they are known was checked on its way in.

    Raises
    ------
    Refusal
        One is there twice, empty or too long, or missing.
    """
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found or not 1 <= len(value) <= LENGTH_LIMIT or "\0" in value:
            raise _wrong(status, name, f"once, with 1 to {LENGTH_LIMIT} characters")
        found[name] = value
    for name in required:
        if name not in found:
            raise _wrong(status, name, "one")
    return found


def in_path(request: Request, name: str) -> str:
    """Return what a call names in its path.

    Raises
    ------
    Refusal
        It is longer than a name, or none (422).
    """
    value: str = request.path_params[name]
    if not 1 <= len(value) <= LENGTH_LIMIT or "\0" in value:
        raise _refused(422, f"path.{name}", f"1 to {LENGTH_LIMIT} characters, none of them NUL")
    return value


def _wrong(status: int, name: str, expected: str) -> Refusal:
    return _refused(status, f"query.{name[:60]}", expected)


def _refused(status: int, field: str, expected: str) -> Refusal:
    return Refusal(status, f"{field}: expected {expected}", faults=[{"field": field, "expected": expected}])

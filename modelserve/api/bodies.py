"""Read the body, query and path parameters of a call, within limits on size and time, and validate them strictly.

The fields of a body are checked by its Pydantic model.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import ClientDisconnect, Request

from modelserve.api.calls import Call
from modelserve.api.problems import Refusal, invalid_body
from modelserve.contract.calls import Parameter

Body = TypeVar("Body", bound=BaseModel)

SMALL_BYTES: Final = 16_384
"""Bodies up to this size in bytes are parsed on the event loop (under a millisecond), larger bodies in a thread."""
FEW_FIELDS: Final = 60_000
"""Number of colons up to which a body has few fields; a reservation call of 1000 jobs has about half this number."""
TOGETHER: Final = 8
"""Maximum total size of all bodies in a worker's memory, as a multiple of the largest allowed body."""
CLOSE: Final = {"connection": "close"}
"""Header sent if a body is refused before its end: the rest is not read, so the connection closes."""
PARTS_LIMIT: Final = 100_000
VALUES_LIMIT: Final = 600_000
FIELDS_LIMIT: Final = 100
ROWS_LIMIT: Final = 10_000
"""Maximum number of items in one list of a body.

`PARTS_LIMIT`, `VALUES_LIMIT` and `FIELDS_LIMIT` are the maximum numbers of lists and objects in a body, of values in a
body, and of fields in one object. A valid row has about sixty values and a few objects.
"""
LENGTH_LIMIT: Final = 256
"""Maximum number of characters of a parameter in a path or a query."""


class JsonBody(Generic[Body]):
    """A parser of JSON bodies into a Pydantic model, without conversions such as text to number.

    `fault_status` is the status of the refusal of an invalid body. In a `bounded` model, all lists have a maximum
    length and stop at their first invalid item, so only unknown fields can be many and invalid. A large body with few
    fields is then parsed at once, and its parts are counted only if it is not valid.
    """

    def __init__(self, model: type[Body], *, fault_status: int = 422, bounded: bool = False) -> None:
        self.model, self._fault_status, self._bounded = model, fault_status, bounded
        # The method of pydantic-core is untyped (Any), but takes half as long as the type adapter's.
        self._read: Any = TypeAdapter(model).validator.validate_json

    async def of(self, call: Call) -> Body:
        """Read the body of a call and parse it."""
        check_json(call)
        data = await take(call)
        try:
            small = len(data) <= SMALL_BYTES
            body, call.body = self._checked(data) if small else await call.desk.slots.run(partial(self._large, data))
        except ValidationError as error:
            raise invalid_body(error, status=self._fault_status) from error
        return body

    def _large(self, data: bytes) -> tuple[Body, bytes]:
        if self._bounded and data.count(b":") <= FEW_FIELDS:
            with contextlib.suppress(ValidationError):
                return self._checked(data)
        check_size(data, status=self._fault_status)
        return self._checked(data)

    def _checked(self, data: bytes) -> tuple[Body, bytes]:
        """Parse a body; return it and its JSON.

        If an integer field holds a float such as 3.0, all whole floats are replaced by integers first.
        """
        try:
            return self._read(data, strict=True), data
        except ValidationError as error:
            if not any(each["type"] == "int_type" and isinstance(each["input"], float) for each in error.errors()):
                raise
        data = to_json(whole(from_json(data)))
        return self._read(data, strict=True), data


def whole(value: object) -> object:
    """Return a JSON value with whole floats as integers (3 for 3.0), because JSON has only one type of number.

    >>> whole({"instances": 3.0, "request": [1.5, None]})
    {'instances': 3, 'request': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_size(data: bytes, *, status: int) -> None:
    """Raise `Refusal` if a body has more values, lists or objects than any valid body can have.

    Validation takes microseconds for each invalid value, so a body with millions of them would block the worker. Values
    are therefore counted before validation.
    """
    if data.count(b"{") + data.count(b"[") > PARTS_LIMIT or data.count(b",") > VALUES_LIMIT:
        raise _too_much(status, "the body", f"{PARTS_LIMIT} lists and objects, and {VALUES_LIMIT} values")
    try:
        waiting = [from_json(data)]
    except ValueError:
        return  # not JSON, which is reported when the body is parsed
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and len(part) > FIELDS_LIMIT:
            raise _too_much(status, "an object", f"{FIELDS_LIMIT} fields")
        if isinstance(part, list) and len(part) > ROWS_LIMIT:
            raise _too_much(status, f"a list of {len(part)}", f"{ROWS_LIMIT} jobs in one call")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting.extend(each for each in inner if isinstance(each, dict | list))


def _too_much(status: int, what: str, limit: str) -> Refusal:
    faults = [{"field": "body", "expected": f"at most {limit}"}]
    return Refusal(status, f"{what} is too large, expected at most {limit}", faults=faults)


def check_json(call: Call) -> None:
    """Raise `Refusal` (415) if the content type is not JSON, or the body is compressed: its size is not known then.

    A missing content type counts as JSON.
    """
    header = call.headers.get(b"content-type", b"application/json")
    if header != b"application/json":
        kind = header.partition(b";")[0].strip().lower()
        if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
            accept = {"accept": "application/json"}
            raise Refusal(415, f"content-type: {_shown(header)}, expected application/json", headers=accept)
    coding = call.headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        accept = {"accept-encoding": "identity"}
        raise Refusal(415, f"content-encoding: {_shown(coding)}, expected none", headers=accept)


def _shown(value: bytes) -> str:
    return repr(value[:60].decode("ascii", errors="replace"))


async def take(call: Call) -> bytes:
    """Return the bytes of a call's body, without a second copy in memory."""
    limit, limit_s = call.desk.settings.body_limit_bytes, call.desk.settings.body_read_limit_s
    header = call.headers.get(b"content-length")
    if header is not None and header.isdigit() and int(header[:20]) > limit:
        raise _too_large(f"{int(header[:20])} bytes", limit)
    try:
        async with asyncio.timeout(limit_s):
            parts, size, more = [], 0, True
            while more:
                message = await call.receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large("more", limit)
                if size > SMALL_BYTES:
                    call.hold(size, TOGETHER * limit)
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {limit_s:g} s", headers=CLOSE) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(found: str, limit: int) -> Refusal:
    detail = f"the body has {found}, expected at most {limit} bytes; send fewer jobs in one call"
    return Refusal(413, detail, headers=CLOSE)


def parameters_of(request: Request, parameters: Sequence[Parameter], *, status: int = 422) -> dict[str, str]:
    """Return the parameters in the path and the query of a call, checked; `status` is that of their refusal."""
    known = {each.name: each for each in parameters if each.place == "query"}
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise _wrong(status, f"query.{name[:60]}", f"one of {', '.join(known)}" if known else "no parameters here")
        if name in found or not _sound(value):
            raise _wrong(status, f"query.{name}", f"once, with 1 to {LENGTH_LIMIT} characters")
        found[name] = value
    for each in parameters:
        if each.place == "path":
            found[each.name] = request.path_params[each.name]
            if not _sound(found[each.name]):
                raise _wrong(status, f"path.{each.name}", f"1 to {LENGTH_LIMIT} characters, none of them NUL")
    return found


def _sound(value: str) -> bool:
    return 1 <= len(value) <= LENGTH_LIMIT and "\0" not in value


def _wrong(status: int, field: str, expected: str) -> Refusal:
    return Refusal(status, f"{field}: expected {expected}", faults=[{"field": field, "expected": expected}])

"""Read the body, query and path parameters of a call, within limits on size and time, and validate them strictly.

The fields of a body are checked by its Pydantic model. Called by the routes.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from modelserve.api.body_sizes import check_size
from modelserve.api.calls import Call
from modelserve.api.problems import Refusal, invalid_body

Body = TypeVar("Body", bound=BaseModel)

SMALL_BYTES: Final = 16_384
"""Bodies up to this size are parsed on the event loop, in well under a millisecond; larger ones in a thread."""

FEW_FIELDS: Final = 60_000
"""Number of colons up to which a body has few fields; a reservation call of 1000 jobs has about half as many."""

TOGETHER: Final = 8
"""Maximum total size of all bodies in a worker's memory, as a multiple of the largest allowed body."""

CLOSE: Final = {"connection": "close"}
"""Header sent when a body is refused before its end: the connection closes, since the rest is not read."""


class JsonBody(Generic[Body]):
    """A parser of JSON bodies into a Pydantic model, without conversions such as text to number.

    `fault_status` is the status of the refusal of an invalid body.
    """

    def __init__(self, model: type[Body], *, fault_status: int = 422) -> None:
        self.model, self._fault_status = model, fault_status
        # The method of pydantic-core is untyped (Any), but takes half as long as the type adapter's.
        self._read: Any = TypeAdapter(model).validator.validate_json

    async def of(self, call: Call) -> Body:
        """Read the body of a call and parse it.

        Raises
        ------
        Refusal
            The body is too large (413), arrives too slowly (408), has another content type (415), is not JSON (400), or
            is not valid (`fault_status`).
        """
        check_json(call)
        data = await take(call)
        try:
            body, call.body = (
                self._checked(data)
                if len(data) <= SMALL_BYTES
                else await call.desk.slots.run(partial(self._large, data))
            )
        except ValidationError as error:
            raise invalid_body(error, status=self._fault_status) from error
        return body

    def _large(self, data: bytes) -> tuple[Body, bytes]:
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


class BoundedBody(JsonBody[Body]):
    """A parser into a Pydantic model whose lists all have a maximum length and stop at their first invalid item.

    Of such a model, only unknown fields can be many and invalid. So a large body with few fields is parsed at once, and
    its parts are counted only if it is not valid.
    """

    def _large(self, data: bytes) -> tuple[Body, bytes]:
        if data.count(b":") <= FEW_FIELDS:
            with contextlib.suppress(ValidationError):
                return self._checked(data)
        return super()._large(data)


def whole(value: object) -> object:
    """Return a JSON value with whole floats as integers (3 for 3.0), since JSON has only one kind of number.

    Examples
    --------
    >>> whole({"instances": 3.0, "request": [1.5, None]})
    {'instances': 3, 'request': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_json(call: Call) -> None:
    """Raise `Refusal` (415) if the content type is not JSON; a missing content type counts as JSON."""
    header = call.headers.get(b"content-type", b"application/json")
    if header != b"application/json":
        kind = header.partition(b";")[0].strip().lower()
        if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
            raise Refusal(
                415, f"content-type: {shown(header)}, expected application/json", headers={"accept": "application/json"}
            )
    check_plain(call)


def check_plain(call: Call) -> None:
    """Raise `Refusal` (415) if a body is compressed, since its uncompressed size is not known in advance."""
    coding = call.headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        raise Refusal(415, f"content-encoding: {shown(coding)}, expected none", headers={"accept-encoding": "identity"})


async def take(call: Call) -> bytes:
    """Return the bytes of a call's body, without a second copy in memory.

    Raises
    ------
    Refusal
        The body is too large (413), does not arrive in time (408), or all bodies together are too large (503).
    """
    limit = call.desk.settings.body_limit_bytes
    header = call.headers.get(b"content-length")
    if header is not None and header.isdigit() and int(header[:20]) > limit:
        raise _too_large(f"{int(header[:20])} bytes", limit)
    limit_s = call.desk.settings.body_read_limit_s
    taking = _taken(call, limit)
    try:
        awaited = taking.send(None)
    except StopIteration as whole_body:
        body: bytes = whole_body.value
        return body  # it arrived together with the request head, so no timer was needed
    try:
        async with asyncio.timeout(limit_s):
            return await _Begun(taking, awaited)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {limit_s:g} s", headers=CLOSE) from None


class _Begun:
    """A coroutine that has run up to its first `await`; awaiting this object runs the rest.

    `awaited` is the object that the coroutine yielded there.
    """

    def __init__(self, begun: Coroutine[Any, Any, bytes], awaited: Any) -> None:  # Any: internal to the event loop
        self._begun, self._awaited = begun, awaited

    def __await__(self) -> Generator[Any, Any, bytes]:  # Any: internal to the event loop
        awaited = self._awaited
        while True:
            step: Callable[[], Any]  # Any: internal to the event loop
            try:
                step = partial(self._begun.send, (yield awaited))
            except BaseException as error:  # for example a timeout
                step = partial(self._begun.throw, error)
            try:
                awaited = step()
            except StopIteration as done:
                body: bytes = done.value
                return body


async def _taken(call: Call, limit: int) -> bytes:
    message = await call.receive()
    parts, size = [], 0
    while message["type"] == "http.request":
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large("more", limit)
        if size > SMALL_BYTES:
            call.hold(size, TOGETHER * limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        message = await call.receive()
    raise ClientDisconnect


def _too_large(found: str, limit: int) -> Refusal:
    return Refusal(
        413, f"the body has {found}, expected at most {limit} bytes; send fewer jobs in one call", headers=CLOSE
    )


def shown(value: bytes) -> str:
    """Return the first 60 characters of a header's value in printable form, for an error message."""
    return repr(value[:60].decode("ascii", errors="replace"))


LENGTH_LIMIT: Final = 256


def check_known(request: Request, names: Sequence[str], *, status: int = 422) -> None:
    """Check that the query has no parameters other than `names`.

    Raises
    ------
    Refusal
        The query has another parameter.
    """
    for name in request.query_params:
        if name not in names:
            raise _wrong(status, name, f"one of {', '.join(names)}" if names else "no parameters here")


def strict(
    endpoint: Callable[[Request], Awaitable[Response]], names: Sequence[str], *, status: int
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap an endpoint in a check that refuses query parameters other than `names`."""

    async def checked(request: Request) -> Response:
        if request.scope["query_string"]:
            check_known(request, names, status=status)
        return await endpoint(request)

    return checked


def asked_for(request: Request, *, required: Sequence[str] = (), status: int = 422) -> dict[str, str]:
    """Return the query parameters of a call; `strict` has already refused unknown names.

    Raises
    ------
    Refusal
        A parameter is repeated, empty or too long, or a required one is missing.
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
    """Return the value of a parameter in the path of a call.

    Raises
    ------
    Refusal
        The value is empty, too long or contains NUL (422).
    """
    value: str = request.path_params[name]
    if not 1 <= len(value) <= LENGTH_LIMIT or "\0" in value:
        raise _refused(422, f"path.{name}", f"1 to {LENGTH_LIMIT} characters, none of them NUL")
    return value


def _wrong(status: int, name: str, expected: str) -> Refusal:
    return _refused(status, f"query.{name[:60]}", expected)


def _refused(status: int, field: str, expected: str) -> Refusal:
    return Refusal(status, f"{field}: expected {expected}", faults=[{"field": field, "expected": expected}])

"""Bodies: the bytes of a call, taken in within their limits and read once, straight into what is meant.

No row is judged here beyond what its model says. Called by the routes that take a body.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import ClientDisconnect

from modelserve.api.calls import Call
from modelserve.api.problems import Refusal, invalid_body

Body = TypeVar("Body", bound=BaseModel)

JSON: Final = "application/json"
SMALL_BYTES: Final = 16_384
"""Bodies up to here are read on the event loop, in well under a millisecond unless they are full of faults."""

PARTS_LIMIT: Final = 100_000
VALUES_LIMIT: Final = 600_000
FIELDS_LIMIT: Final = 100
ROWS_LIMIT: Final = 10_000
"""What no body has more of: ten thousand rows of some sixty values and a few objects each."""

TOGETHER: Final = 8
"""How many of the largest bodies a worker holds at once, whoever they are from."""

CLOSE: Final = {"connection": "close"}
"""Sent when a body is refused before its end: what is still to come has no reader."""


class JsonBody(Generic[Body]):
    """One kind of body: the model it is read into, strictly: no text is a number, and no number true or false."""

    def __init__(self, model: type[Body], *, fault_status: int = 422) -> None:
        self.model, self._fault_status = model, fault_status
        # The core's own, and so untyped (Any): the adapter's costs twice as much.
        self._read: Any = TypeAdapter(model).validator.validate_json

    async def of(self, call: Call) -> Body:
        """Read the body of a call.

        Raises
        ------
        Refusal
            It is too large (413), too slow (408), of another type (415), no JSON (400), or not what is meant.
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
        """Return what a body means, and the JSON that means it."""
        try:
            return self._read(data, strict=True), data
        except ValidationError as error:
            if not any(each["type"] == "int_type" and isinstance(each["input"], float) for each in error.errors()):
                raise
        data = to_json(whole(from_json(data)))
        return self._read(data, strict=True), data


def whole(value: object) -> object:
    """Return a JSON value with 3 for 3.0: JSON knows one kind of number, and so do its schemas.

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


def check_size(data: bytes, *, status: int) -> None:
    """Raise `Refusal` where a body has more parts than any call: reading them would hold up everybody.

    Each part that is not what is expected costs microseconds to report, and a body has room for millions. Parts are
    counted before anything is made of them.
    """
    if data.count(b"{") + data.count(b"[") > PARTS_LIMIT or data.count(b",") > VALUES_LIMIT:
        raise _too_much(status, "the body", f"{PARTS_LIMIT} lists and objects, and {VALUES_LIMIT} values")
    try:
        waiting = [from_json(data)]
    except ValueError:
        return  # whoever reads it says what is wrong
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and len(part) > FIELDS_LIMIT:
            raise _too_much(status, "an object", f"{FIELDS_LIMIT} fields")
        if isinstance(part, list) and len(part) > ROWS_LIMIT:
            raise _too_much(status, f"a list of {len(part)}", f"{ROWS_LIMIT} jobs in one call")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting.extend(each for each in inner if isinstance(each, dict | list))


def _too_much(status: int, what: str, limit: str) -> Refusal:
    expected = f"at most {limit}"
    return Refusal(status, f"{what} is too much, expected {expected}", faults=[{"field": "body", "expected": expected}])


def check_json(call: Call) -> None:
    """Raise `Refusal` (415) where a call says that its body is no JSON; one that says nothing is taken at its word."""
    said = call.headers.get(b"content-type", b"application/json")
    if said != b"application/json":
        kind = said.partition(b";")[0].strip().lower()
        if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
            raise Refusal(
                415, f"content-type: {shown(said)}, expected application/json", headers={"accept": "application/json"}
            )
    check_plain(call)


def check_plain(call: Call) -> None:
    """Raise `Refusal` (415) where a body is compressed: how large it would grow is not known beforehand."""
    coding = call.headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        raise Refusal(415, f"content-encoding: {shown(coding)}, expected none", headers={"accept-encoding": "identity"})


async def take(call: Call) -> bytes:
    """Return the bytes of a call's body, none of them twice in memory.

    Raises
    ------
    Refusal
        More bytes than allowed (413), not all of them in time (408), or too many of all calls together (503).
    """
    limit = call.desk.settings.body_limit_bytes
    said = call.headers.get(b"content-length")
    if said is not None and said.isdigit() and int(said[:20]) > limit:
        raise _too_large(f"{int(said[:20])} bytes", limit)
    limit_s = call.desk.settings.body_read_limit_s
    taking = _taken(call, limit)
    try:
        awaited = taking.send(None)
    except StopIteration as whole_body:
        body: bytes = whole_body.value
        return body  # it came with its head, as small ones do: a timer would cost more than reading it
    try:
        async with asyncio.timeout(limit_s):
            return await _Begun(taking, awaited)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {limit_s:g} s", headers=CLOSE) from None


class _Begun:
    """A coroutine that has taken its first step, and what that step awaits: to be awaited for the rest."""

    def __init__(self, begun: Coroutine[Any, Any, bytes], awaited: Any) -> None:  # Any: the event loop's own affair
        self._begun, self._awaited = begun, awaited

    def __await__(self) -> Generator[Any, Any, bytes]:  # Any: the event loop's own affair
        awaited = self._awaited
        while True:
            step: Callable[[], Any]  # Any: the event loop's own affair
            try:
                step = partial(self._begun.send, (yield awaited))
            except BaseException as error:  # a call that is cut off, or out of time
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
    """Return a header's value for a message: short, and of plain characters."""
    return repr(value[:60].decode("ascii", errors="replace"))

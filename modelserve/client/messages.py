"""Build the requests of the clients, and check and read the replies. This module does no I/O."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from modelserve.bundle.card import complaint
from modelserve.contract.calls import CallShape
from modelserve.errors import BadRequest, Refused, ServiceUnavailable, WrongAnswer

Answer = TypeVar("Answer", bound=BaseModel)
Item = TypeVar("Item")
Row = TypeVar("Row", bound=BaseModel)

OK: Final = frozenset({200})
SHOWN: Final = 300
"""Maximum number of characters of a reply's text that an error message repeats."""
MOST_BYTES: Final = 256 * 2**20
"""Maximum size in bytes of an answer, unless the call sets another limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to the service; if it is `repeatable`, sending it twice has the same effect as once."""

    method: str
    path: str
    repeatable: bool
    body: bytes | None = field(default=None, repr=False)
    params: Mapping[str, str] = field(default_factory=dict)
    expected: frozenset[int] = OK
    most_bytes: int = MOST_BYTES

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the service, with any HTTP status."""

    status: int
    content: bytes = field(repr=False)
    retry_after: str | None = None


def message_of(of: CallShape[Any], body: bytes | None = None, **values: str | None) -> Call:
    """Return the request of a call; `values` are its parameters, of which those that are None are left out."""
    path, params = of.path, given(values)
    for each in of.parameters:
        if each.place == "path":
            path = path.replace(f"{{{each.name}}}", segment(params.pop(each.name)))
    return Call(method=of.method, path=path, repeatable=of.repeatable, body=body, params=params)


def segment(name: str) -> str:
    """Return a name, percent-encoded as one segment of a URL path.

    >>> segment("a/b c")
    'a%2Fb%20c'
    """
    if name in ("", ".", ".."):
        raise BadRequest(f"found the name {name!r}, expected one that is valid in a path")
    return quote(name, safe="")


def with_jobs(field: str, rows: Iterable[BaseModel], **values: object) -> bytes:
    """Return a JSON body with a list of rows and other values; fields that are unset or None are left out."""
    listed = [row.model_dump(mode="json", exclude_unset=True, exclude_none=True) for row in rows]
    return json.dumps({field: listed, **given(values)}, separators=(",", ":")).encode()


def whole(body: BaseModel) -> bytes:
    """Return a body as JSON; fields that are unset or None are left out."""
    return body.model_dump_json(exclude_unset=True, exclude_none=True).encode()


def rows_as(kind: type[Row], items: Iterable[BaseModel | Mapping[str, object]], *, field: str = "jobs") -> list[Row]:
    """Validate items as rows of the model `kind`; `field` is the name of the list in error messages."""
    return [body_as(kind, item, field=f"{field}.{place}.") for place, item in enumerate(items)]


def body_as(kind: type[Row], item: BaseModel | Mapping[str, object], *, field: str = "") -> Row:
    """Validate a body as the model `kind`; `field` comes before the invalid field in the message of `BadRequest`."""
    try:
        if type(item) is kind:
            return item
        return kind.model_validate(item.model_dump(exclude_unset=True) if isinstance(item, BaseModel) else item)
    except ValidationError as error:
        raise BadRequest(f"{field}{complaint(error)}") from error


def parts(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """Split a list into parts of at most `most` items, in order.

    >>> list(parts("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[start : start + most] for start in range(0, len(items), most))


def read_answer(kind: type[Answer], content: bytes, call: Call) -> Answer:
    """Parse the JSON of an answer as the model `kind`."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise WrongAnswer(
            f"{call}: found an answer with {complaint(error)}; expected a {kind.__name__}; "
            "see that the address is a taut service of this version"
        ) from error


def check_ids(asked: Sequence[str], answered: Sequence[str], call: Call) -> None:
    """Raise `WrongAnswer` unless the job ids in the answer are the requested ones, in the same order."""
    if len(asked) != len(answered):
        raise WrongAnswer(f"{call}: found {len(answered)} jobs answered, expected the {len(asked)} asked")
    for place, (left, right) in enumerate(zip(asked, answered, strict=True)):
        if left != right:
            raise WrongAnswer(f"{call}: found job {right[:40]!r} at place {place}, expected {left[:40]!r}")


def check_status(call: Call, reply: Reply) -> None:
    """Raise the error for a reply's status, unless the call expects this status.

    It is `Refused` for 4xx and `ServiceUnavailable` for 5xx. Any other status is a `WrongAnswer`, such as a redirect:
    redirects are not followed, so that the token goes nowhere else.
    """
    if reply.status in call.expected:
        return
    problem = problem_of(reply)
    text = problem_text(reply.status, problem)
    if 400 <= reply.status < 500:
        raise Refused(f"{call}: {text}", status=reply.status, problem=problem)
    if reply.status >= 500:
        raise ServiceUnavailable(f"{call}: {text}")
    raise WrongAnswer(f"{call}: found status {reply.status}, expected {sorted(call.expected)}")


def problem_of(reply: Reply) -> Mapping[str, object]:
    """Return the problem details in a reply (RFC 9457), or {} if it has none."""
    try:
        found = json.loads(reply.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def problem_text(status: int, problem: Mapping[str, object]) -> str:
    """Return a status and its problem details (RFC 9457) as text for an error message.

    >>> problem_text(422, {"title": "Unprocessable", "detail": "jobs.0.instances: found 0"})
    '422 Unprocessable: jobs.0.instances: found 0'
    """
    texts = [str(problem[key])[:SHOWN] for key in ("title", "detail") if problem.get(key)]
    return " ".join([str(status), ": ".join(texts)]).strip()


def given(values: Mapping[str, Item | None]) -> dict[str, Item]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}

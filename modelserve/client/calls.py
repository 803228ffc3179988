"""Calls as values: what is sent for a method of the client, long lists in parts, and what came back, checked.

No I/O and no retries here. Called by `modelserve.client.asynchronous` and `modelserve.client.exchange`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from modelserve.bundle.card import complaint
from modelserve.contract.requests import JobRow
from modelserve.errors import BadRequest, Refused, ServiceUnavailable, WrongAnswer

Answer = TypeVar("Answer", bound=BaseModel)
Item = TypeVar("Item")
Row = TypeVar("Row", bound=BaseModel)

OK: Final = frozenset({200})
SHOWN: Final = 300
"""Characters of somebody else's text that an error carries on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of the service; `repeatable` says that sending it twice does what sending it once does."""

    method: str
    path: str
    repeatable: bool
    body: bytes | None = field(default=None, repr=False)
    params: Mapping[str, str] = field(default_factory=dict)
    expected: frozenset[int] = OK

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back, whatever its status."""

    status: int
    content: bytes = field(repr=False)
    retry_after: str | None = None


def get(path: str, *, expected: frozenset[int] = OK, **params: str | None) -> Call:
    """Return a call that reads; parameters that are None are left out."""
    return Call(method="GET", path=path, repeatable=True, params=_given(params), expected=expected)


def post(path: str, body: bytes, *, repeatable: bool) -> Call:
    """Return a call that sends a body of JSON."""
    return Call(method="POST", path=path, repeatable=repeatable, body=body)


def delete(path: str, **params: str | None) -> Call:
    """Return a call that deletes; it is not sent twice."""
    return Call(method="DELETE", path=path, repeatable=False, params=_given(params))


def segment(name: str) -> str:
    """Return a name as a part of a path.

    Raises
    ------
    BadRequest
        It cannot be one.

    Examples
    --------
    >>> segment("a/b c")
    'a%2Fb%20c'
    """
    if name in ("", ".", ".."):
        raise BadRequest(f"found the name {name!r}, expected one that can stand in a path")
    return quote(name, safe="")


def fields(**values: object) -> bytes:
    """Return a body of JSON; values that are None are left out.

    Examples
    --------
    >>> fields(trace="pai", theta=None)
    b'{"trace":"pai"}'
    """
    return json.dumps(_given(values), separators=(",", ":")).encode()


def with_list(name: str, rows: Iterable[BaseModel], **values: object) -> bytes:
    """Return a body of JSON with a list of rows in it; what a row does not say is left out."""
    return _with(name, b"[" + b",".join(map(_row, rows)) + b"]", values)


def with_job(row: JobRow, **values: object) -> bytes:
    """Return a body of JSON about one job; what it does not say is left out."""
    return _with("job", _row(row), values)


def rows_as(kind: type[Row], items: Iterable[BaseModel | Mapping[str, object]], *, field: str = "jobs") -> list[Row]:
    """Return items as rows of a kind, checked; `field` is the list that they go into.

    Raises
    ------
    BadRequest
        One is no such row; the message names its place and the field.
    """
    rows = []
    for place, item in enumerate(items):
        try:
            if type(item) is kind:
                rows.append(item)
            else:
                said = item.model_dump(exclude_unset=True) if isinstance(item, BaseModel) else item
                rows.append(kind.model_validate(said))
        except ValidationError as error:
            raise BadRequest(f"{field}.{place}.{complaint(error)}") from error
    return rows


def parts(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """Split a list into pieces of at most `most`, in order; an empty list is one empty piece.

    Examples
    --------
    >>> list(parts("abcde", 2))
    ['ab', 'cd', 'e']
    """
    for start in range(0, max(len(items), 1), most):
        yield items[start : start + most]


def read_answer(kind: type[Answer], content: bytes, call: Call) -> Answer:
    """Read an answer from JSON.

    Raises
    ------
    WrongAnswer
        It is not of the kind asked for.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise WrongAnswer(
            f"{call}: found an answer with {complaint(error)}; expected a {kind.__name__}; "
            "see that the address is a taut service of this version"
        ) from error


def check_ids(asked: Sequence[str], answered: Sequence[str], call: Call) -> None:
    """Raise `WrongAnswer` unless the jobs answered are those asked, in the same order."""
    if len(asked) != len(answered):
        raise WrongAnswer(f"{call}: found {len(answered)} jobs answered, expected the {len(asked)} asked")
    for place, (left, right) in enumerate(zip(asked, answered, strict=True)):
        if left != right:
            raise WrongAnswer(f"{call}: found job {right[:40]!r} at place {place}, expected {left[:40]!r}")


def check_status(call: Call, reply: Reply) -> None:
    """Raise what a reply's status means, unless it is one of those the call expects.

    Raises
    ------
    Refused
        The service said no (4xx).
    ServiceUnavailable
        It failed (5xx).
    WrongAnswer
        Anything else, as a redirect: the token is not carried elsewhere.
    """
    if reply.status in call.expected:
        return
    problem = problem_of(reply)
    said = saying(reply.status, problem)
    if 400 <= reply.status < 500:
        raise Refused(f"{call}: {said}", status=reply.status, problem=problem)
    if reply.status >= 500:
        raise ServiceUnavailable(f"{call}: {said}")
    raise WrongAnswer(f"{call}: found status {reply.status}, expected {sorted(call.expected)}")


def problem_of(reply: Reply) -> Mapping[str, object]:
    """Return the problem that a reply tells of (RFC 9457); {} where it tells of none."""
    try:
        found = json.loads(reply.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def saying(status: int, problem: Mapping[str, object]) -> str:
    """Return a problem in one line.

    Examples
    --------
    >>> saying(422, {"title": "Unprocessable", "detail": "jobs.0.instances: found 0"})
    '422 Unprocessable: jobs.0.instances: found 0'
    """
    told = [str(problem[key])[:SHOWN] for key in ("title", "detail") if problem.get(key)]
    return " ".join([str(status), ": ".join(told)]).strip()


def _with(name: str, written: bytes, values: Mapping[str, object]) -> bytes:
    rest = fields(**values)[1:]
    return b'{"%s":%s%s%s' % (name.encode(), written, b"," if rest != b"}" else b"", rest)


def _row(row: BaseModel) -> bytes:
    return row.model_dump_json(exclude_unset=True, exclude_none=True).encode()


def _given(values: Mapping[str, Item | None]) -> dict[str, Item]:
    return {name: value for name, value in values.items() if value is not None}

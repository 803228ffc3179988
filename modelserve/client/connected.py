"""Base of the asynchronous client: its parameters and connections, and long lists sent in parts.

The calls themselves are in `modelserve.client.asynchronous`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, Self, TypeVar

import httpx2
from pydantic import BaseModel

from modelserve.client.calls import Call, check_ids, parts, post, read_answer, with_list
from modelserve.client.exchange import Exchange, Surroundings
from modelserve.client.policy import JOBS_PER_CALL, Retries, Timeouts
from modelserve.contract.requests import MAX_JOBS, JobRow
from modelserve.errors import BadRequest, Refused

Row = TypeVar("Row")
Found = TypeVar("Found")
Said = TypeVar("Said", bound=BaseModel)


class AboutJob(Protocol):
    """A row of a call or of an answer that is about one job."""

    @property
    def job_id(self) -> str:
        """Return the id of the job."""
        ...


class CopiedRow(AboutJob, Protocol):
    """A row of an answer, a pydantic model."""

    def model_copy(self, *, update: Mapping[str, object] | None = None) -> Self:
        """Return a copy with some values replaced."""
        ...


Answered = TypeVar("Answered", bound=CopiedRow)


@dataclass(frozen=True, slots=True)
class Batch(Generic[Said, Answered]):
    """A call that takes a list of jobs: its path, its answer, and how to take the answer's id and rows from it."""

    path: str
    kind: type[Said]
    rows: Callable[[Said], tuple[str, Sequence[Answered]]]


LISTS: Final = ("jobs", "feedback")
"""Fields of the request bodies whose lists are sent in parts."""


class Connected:
    """Base of a client of the prediction service for asyncio.

    Parameters
    ----------
    addresses
        Addresses of the service, such as `http://127.0.0.1:8080`; several addresses are replicas, tried in turn.
    token
        Bearer token, sent to these addresses only, and never part of a message.
    ca_file
        PEM file of the trusted certificate authorities; None means those of the system.
    verify
        Whether TLS certificates are checked; use False for trials only.
    timeouts, retries
        How long a call may take, and when it is retried. Only calls that change nothing and feedback (which the service
        counts once, however often it is sent) are retried.
    jobs_per_call
        Maximum number of jobs in one call. Longer lists are sent in parts; their answers are joined in order.
    """

    def __init__(
        self,
        *addresses: str,
        token: str | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        jobs_per_call: int = JOBS_PER_CALL,
        surroundings: Surroundings | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if not 1 <= jobs_per_call <= MAX_JOBS:
            raise BadRequest(f"client: found jobs_per_call={jobs_per_call}, expected 1 to {MAX_JOBS}")
        self.jobs_per_call = jobs_per_call
        self.exchange = Exchange(
            addresses,
            token=token,
            ca_file=ca_file,
            verify=verify,
            timeouts=timeouts or Timeouts(),
            retries=retries or Retries(),
            surroundings=surroundings or Surroundings(),
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.exchange.addresses))})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later calls raise `ClientError`."""
        await self.exchange.close()

    async def ask(self, kind: type[Said], call: Call) -> Said:
        """Send a call and return its answer, parsed as `kind`."""
        return read_answer(kind, await self.exchange.send(call, self.exchange.deadline()), call)

    async def ask_about(
        self,
        jobs: Iterable[AboutJob],
        kind: type[Said],
        call: Call,
        rows: Callable[[Said], Iterable[AboutJob]],
    ) -> Said:
        """Send a call about jobs and return its answer; `rows` returns the rows of the answer, one per job in order.

        Raises
        ------
        WrongAnswer
            The rows are not those of the jobs.
        """
        said = await self.ask(kind, call)
        check_ids([job.job_id for job in jobs], [row.job_id for row in rows(said)], call)
        return said

    async def each(
        self, of: Batch[Said, Answered], jobs: Sequence[JobRow], *, most: int = MAX_JOBS, **options: object
    ) -> list[Answered]:
        """Send jobs in parts, each with `options`, and return one row per job, in order, with its `answer_id`."""

        async def ask(part: Sequence[JobRow], deadline: float) -> list[Answered]:
            call = post(of.path, with_list("jobs", part, **options), repeatable=True)
            said = read_answer(of.kind, await self.exchange.send(call, deadline), call)
            answer_id, rows = of.rows(said)
            check_ids([job.job_id for job in part], [row.job_id for row in rows], call)
            return [row.model_copy(update={"answer_id": answer_id}) for row in rows]

        return await self.in_parts(jobs, ask, most=most)

    async def in_parts(
        self,
        rows: Sequence[Row],
        ask: Callable[[Sequence[Row], float], Awaitable[list[Found]]],
        *,
        most: int = MAX_JOBS,
    ) -> list[Found]:
        """Call `ask` with consecutive parts of `rows`, and return the results as one list, in order.

        A part has at most `most` rows, and at most `jobs_per_call`.
        """
        deadline = self.exchange.deadline()
        found: list[Found] = []
        for part in parts(rows, min(self.jobs_per_call, most)):
            found += await self.halved(part, ask, deadline)
        return found

    async def halved(
        self, part: Sequence[Row], ask: Callable[[Sequence[Row], float], Awaitable[list[Found]]], deadline: float
    ) -> list[Found]:
        """Call `ask` with a part; if the service refuses the part as too large, with its halves."""
        if not part:
            return []
        try:
            return await ask(part, deadline)
        except Refused as refusal:
            if len(part) < 2 or not is_too_long(refusal):
                raise
        middle = len(part) // 2
        return [
            *await self.halved(part[:middle], ask, deadline),
            *await self.halved(part[middle:], ask, deadline),
        ]


def is_too_long(refusal: Refused) -> bool:
    """Return whether a list was refused for its length: too many bytes (413), or too many rows (422 for the list).

    Examples
    --------
    >>> is_too_long(Refused("", status=413, problem={}))
    True
    >>> is_too_long(Refused("", status=422, problem={"errors": [{"field": "jobs.0.instances"}]}))
    False
    """
    faults = refusal.problem.get("errors")
    first = faults[0] if isinstance(faults, list) and faults else None
    of_list = isinstance(first, dict) and first.get("field") in LISTS
    return refusal.status == 413 or (refusal.status == 422 and of_list)

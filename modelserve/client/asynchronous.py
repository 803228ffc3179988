"""`AsyncClient`: every call of the service as a coroutine, with jobs in and typed answers out.

How a call is sent is `modelserve.client.exchange`'s. Called by asyncio programs, and by `Client` for callers that wait.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self, TypeVar

import httpx2

from modelserve.answers import Prediction, PredictionsSaid, RecommendationsSaid, Recommended
from modelserve.client.calls import check_ids, job_rows, parts, post, read_answer, with_list
from modelserve.client.exchange import Exchange, Surroundings
from modelserve.client.policy import Retries, Timeouts
from modelserve.client.standing import askable, recommendation_of, stands
from modelserve.errors import BadRequest, ClientError, Refused
from modelserve.requests import MAX_JOBS, JobRow
from scheduler_core.types import Job, Recommendation

Jobs = Sequence[JobRow | Mapping[str, object]]
Row = TypeVar("Row")
Found = TypeVar("Found")

TOO_LARGE = 413
"""Said of a list that is too long for the service; its halves may not be."""


class AsyncClient:
    """A client of the prediction service, for asyncio.

    Parameters
    ----------
    addresses
        Where the service is, as `http://127.0.0.1:8080`; several are replicas, and tried in turn.
    token
        Bearer token; it is sent to these addresses only, and never shown.
    ca_file
        PEM file of the authorities to trust; the system's own when None.
    verify
        Whether certificates are checked; False is for trying out only.
    timeouts, retries
        How long a call may take, and when it is tried again. Only calls that change nothing, and feedback (which the
        service takes once however often it is sent), are sent again.
    jobs_per_call
        Longer lists are sent in parts of at most so many; their answers come back as one list, in order.
    """

    def __init__(
        self,
        *addresses: str,
        token: str | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        jobs_per_call: int = MAX_JOBS,
        surroundings: Surroundings | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if not 1 <= jobs_per_call <= MAX_JOBS:
            raise BadRequest(f"client: found jobs_per_call={jobs_per_call}, expected 1 to {MAX_JOBS}")
        self._jobs_per_call = jobs_per_call
        self._exchange = Exchange(
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
        return f"{type(self).__name__}({', '.join(map(repr, self._exchange.addresses))})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls after it are refused."""
        await self._exchange.close()

    async def predictions(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        outputs: Sequence[Literal["run_time", "peak_use"]] | None = None,
    ) -> list[Prediction]:
        """Ask how long jobs will run and what they will use at most; answers are in the order of the jobs.

        Raises
        ------
        BadRequest
            A job cannot be meant.
        ClientError
            No answer came: `ServiceUnavailable`, `Refused` or `WrongAnswer`.
        """

        async def ask(part: Sequence[JobRow], deadline: float) -> list[Prediction]:
            call = post("/v1/predictions", with_list("jobs", part, trace=trace, outputs=outputs), repeatable=True)
            said = read_answer(PredictionsSaid, await self._exchange.send(call, deadline), call)
            check_ids([row.job_id for row in part], [row.job_id for row in said.predictions], call)
            return [row.model_copy(update={"answer_id": said.answer_id}) for row in said.predictions]

        return await self._in_parts(job_rows(jobs), ask)

    async def recommendations(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Literal["usage", "none"] | None = None,
    ) -> list[Recommended]:
        """Ask how far requests can shrink; answers are in the order of the jobs.

        Raises
        ------
        BadRequest
            A job cannot be meant.
        ClientError
            No answer came: `ServiceUnavailable`, `Refused` or `WrongAnswer`.
        """

        async def ask(part: Sequence[JobRow], deadline: float) -> list[Recommended]:
            return await self._recommended(part, deadline, trace=trace, theta=theta, alpha=alpha, guard=guard)

        return await self._in_parts(job_rows(jobs), ask)

    async def recommend(self, jobs: Sequence[Job]) -> list[Recommendation]:
        """Recommend a target for each job, as `scheduler_core.shrink` does; nothing is raised and no job is lost.

        Where no answer comes, or none that can be meant, requests stand (`predictor_unavailable`), and `note` says why.
        """
        rows, notes = askable(jobs)
        found = [stands(job, note) for job, note in zip(jobs, notes, strict=True)]
        asked = [(i, row) for i, row in enumerate(rows) if row is not None]
        deadline = self._exchange.deadline()
        for part in parts(asked, self._jobs_per_call):
            try:
                said = await self._halved([row for _, row in part], self._recommended, deadline)
            except ClientError as error:
                for i, _ in part:
                    found[i] = stands(jobs[i], str(error))
                continue
            for (i, _), answer in zip(part, said, strict=True):
                found[i] = recommendation_of(jobs[i], answer)
        return found

    async def _recommended(self, part: Sequence[JobRow], deadline: float, **options: object) -> list[Recommended]:
        if not part:
            return []
        call = post("/v1/recommendations", with_list("jobs", part, **options), repeatable=True)
        said = read_answer(RecommendationsSaid, await self._exchange.send(call, deadline), call)
        check_ids([row.job_id for row in part], [row.job_id for row in said.recommendations], call)
        return [row.model_copy(update={"answer_id": said.answer_id}) for row in said.recommendations]

    async def _in_parts(
        self, rows: Sequence[Row], ask: Callable[[Sequence[Row], float], Awaitable[list[Found]]]
    ) -> list[Found]:
        deadline = self._exchange.deadline()
        found: list[Found] = []
        for part in parts(rows, self._jobs_per_call):
            found += await self._halved(part, ask, deadline)
        return found

    async def _halved(
        self, part: Sequence[Row], ask: Callable[[Sequence[Row], float], Awaitable[list[Found]]], deadline: float
    ) -> list[Found]:
        """Ask for a part, and for its halves where the service says that it is too large."""
        if not part:
            return []
        try:
            return await ask(part, deadline)
        except Refused as refusal:
            if refusal.status != TOO_LARGE or len(part) < 2:
                raise
        middle = len(part) // 2
        return [
            *await self._halved(part[:middle], ask, deadline),
            *await self._halved(part[middle:], ask, deadline),
        ]

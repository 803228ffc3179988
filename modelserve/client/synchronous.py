"""`Client`: the calls of `AsyncClient` for callers that wait.

One thread of the client's own runs the one implementation there is, so that a call ends when its time is over, whatever
it hangs on: a name that does not resolve, an answer that trickles. Called by schedulers, scripts and the commands.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from modelserve.answers import Prediction, Recommended
from modelserve.client.asynchronous import AsyncClient, Jobs
from modelserve.client.exchange import Surroundings
from modelserve.client.policy import Retries, Timeouts
from modelserve.client.standing import stands
from modelserve.errors import ClientError
from modelserve.requests import MAX_JOBS
from scheduler_core.types import Job, Recommendation

Result = TypeVar("Result")

CLOSED: Final = "found the client closed, expected calls before `close()` only"


class LoopThread:
    """An event loop in a thread that ends with the process, and the client that lives in it."""

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self.client, self.pid = make(), os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taut-client", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[object, object, Result]) -> "Future[Result]":
        """Begin `work` in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Close the client and break off what is under way, end the thread, and close the loop."""
        self.start(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.client.close()


class Client:
    """A client of the prediction service, for callers that wait; parameters and calls are those of `AsyncClient`.

    Safe from several threads. A process forked from its owner's makes connections of its own.

    Examples
    --------
    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="pai", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> with Client("http://127.0.0.1:9", retries=Retries(tries=1)) as client:  # nobody listens there
    ...     [answer] = client.recommend([asked])
    >>> answer.target == asked.request, str(answer.reasons["gpus"])
    (True, 'predictor_unavailable')
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
    ) -> None:
        self._make = partial(
            AsyncClient,
            *addresses,
            token=token,
            ca_file=ca_file,
            verify=verify,
            timeouts=timeouts,
            retries=retries,
            jobs_per_call=jobs_per_call,
            surroundings=surroundings,
        )
        self._shown = f"Client({', '.join(map(repr, addresses))})"
        self._lock = threading.Lock()
        self._closed = False
        self._thread = LoopThread(self._make)

    def __repr__(self) -> str:
        return self._shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls after it are refused, and closing again does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed and self._thread.pid == os.getpid():
            self._thread.close()

    def predictions(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        outputs: Sequence[Literal["run_time", "peak_use"]] | None = None,
    ) -> list[Prediction]:
        """Ask how long jobs will run and what they will use at most; see `AsyncClient.predictions`."""
        return self._wait(lambda client: client.predictions(jobs, trace=trace, outputs=outputs))

    def recommendations(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Literal["usage", "none"] | None = None,
    ) -> list[Recommended]:
        """Ask how far requests can shrink; see `AsyncClient.recommendations`."""
        return self._wait(
            lambda client: client.recommendations(jobs, trace=trace, theta=theta, alpha=alpha, guard=guard)
        )

    def recommend(self, jobs: Sequence[Job]) -> list[Recommendation]:
        """Recommend a target for each job; nothing is raised and no job is lost, see `AsyncClient.recommend`."""
        try:
            return self._wait(lambda client: client.recommend(jobs))
        except ClientError as error:
            return [stands(job, str(error)) for job in jobs]

    def _wait(self, call: Callable[[AsyncClient], Coroutine[object, object, Result]]) -> Result:
        with self._lock:
            if self._closed:
                raise ClientError(CLOSED)
            if self._thread.pid != os.getpid():
                self._thread = LoopThread(self._make)
            future = self._thread.start(call(self._thread.client))
        try:
            return future.result()
        except CancelledError:
            raise ClientError(CLOSED) from None
        except BaseException:
            # Whoever waits was interrupted: nobody wants the answer any more.
            future.cancel()
            raise

"""`Client`: the calls of `AsyncClient` as blocking methods.

They run in a background thread, where a call ends at its deadline even during a name look-up or a slow response.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial, wraps
from typing import Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from modelserve.client.advice import Advice, unchanged
from modelserve.client.asynchronous import AsyncClient, Item, Said
from modelserve.client.exchange import Options
from modelserve.client.policy import JOBS_PER_CALL
from modelserve.contract.calls import CallShape
from modelserve.contract.fields import Guard
from modelserve.errors import ClientError
from scheduler_core.types import Job

Result = TypeVar("Result")
Given = ParamSpec("Given")

CLOSED: Final = "found the client closed, expected calls before `close()` only"


class LoopThread:
    """An event loop in a daemon thread, with the asynchronous client that runs in it; safe from several threads.

    After a fork, the child process starts its own thread and connections.
    """

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._client, self._pid = self._make(), os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taut-client", daemon=True)
        self._thread.start()

    def run(self, call: Callable[[AsyncClient], Coroutine[object, object, Result]]) -> Result:
        """Run a coroutine in the thread and return its result."""
        with self._lock:
            if self._closed:
                raise ClientError(CLOSED)
            if self._pid != os.getpid():
                self._start()
            future = asyncio.run_coroutine_threadsafe(call(self._client), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ClientError(CLOSED) from None
        finally:
            future.cancel()  # no effect if the coroutine has ended

    def close(self) -> None:
        """Cancel running calls, close the connections and end the thread; a second `close` does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed or self._pid != os.getpid():
            return
        future: Future[None] = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        future.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()


def blocking(
    call: Callable[Concatenate[AsyncClient, Given], Coroutine[object, object, Result]],
) -> Callable[Concatenate["Client", Given], Result]:
    """Return a coroutine method of `AsyncClient` as a blocking method of `Client`, with its parameters and text."""

    @wraps(call)
    def method(self: "Client", /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self.wait(lambda client: call(client, *args, **kwargs))

    return method


class Client:
    """A blocking client of the prediction service, with the parameters and calls of `AsyncClient`.

    Safe from several threads.

    >>> from modelserve.client.policy import Retries
    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="pai", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> with Client("http://127.0.0.1:9", retries=Retries(tries=1)) as client:  # no service runs there
    ...     [answer] = client.recommend([asked])
    >>> answer.target == asked.request, str(answer.reasons["gpus"])
    (True, 'predictor_unavailable')
    """

    def __init__(self, *addresses: str, jobs_per_call: int = JOBS_PER_CALL, **options: Unpack[Options]) -> None:
        make = partial(AsyncClient, *addresses, jobs_per_call=jobs_per_call, **options)
        self._shown = f"{type(self).__name__}({', '.join(map(repr, addresses))})"
        self._thread = LoopThread(make)

    def __repr__(self) -> str:
        return self._shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; later calls raise `ClientError`, and a second `close` does nothing."""
        self._thread.close()

    def wait(self, call: Callable[[AsyncClient], Coroutine[object, object, Result]]) -> Result:
        """Run a call of the asynchronous client in the thread and return its result."""
        return self._thread.run(call)

    def call(self, of: CallShape[Said], body: Item | None = None, **parameters: str | None) -> Said:
        """Send any call of the table with its body or parameters, and return its answer."""
        return self.wait(lambda client: client.call(of, body, **parameters))

    def recommend(
        self, jobs: Sequence[Job], *, theta: float | None = None, alpha: float | None = None, guard: Guard | None = None
    ) -> list[Advice]:
        """Recommend a target for each job of a scheduler; raise no error; see `AsyncClient.recommend`."""
        try:
            return self.wait(lambda client: client.recommend(jobs, theta=theta, alpha=alpha, guard=guard))
        except ClientError as error:
            return [unchanged(job, str(error)) for job in jobs]

    predictions = blocking(AsyncClient.predictions)
    recommendations = blocking(AsyncClient.recommendations)
    recent_recommendations = blocking(AsyncClient.recent_recommendations)
    reservations = blocking(AsyncClient.reservations)
    routes = blocking(AsyncClient.routes)
    placements = blocking(AsyncClient.placements)
    schedule = blocking(AsyncClient.schedule)
    explain_pending = blocking(AsyncClient.explain_pending)
    plan = blocking(AsyncClient.plan)
    holds = blocking(AsyncClient.holds)
    explanations = blocking(AsyncClient.explanations)
    what_if = blocking(AsyncClient.what_if)
    feedback = blocking(AsyncClient.feedback)
    modes = blocking(AsyncClient.modes)
    set_mode = blocking(AsyncClient.set_mode)
    release_brake = blocking(AsyncClient.release_brake)
    drift = blocking(AsyncClient.drift)
    models = blocking(AsyncClient.models)
    importances = blocking(AsyncClient.importances)
    card = blocking(AsyncClient.card)
    ready = blocking(AsyncClient.ready)

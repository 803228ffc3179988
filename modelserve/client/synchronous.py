"""`Client`: the calls of `AsyncClient` as blocking methods; `HttpScale`: recommendations for schedulers.

Both run an asynchronous client in a background thread, where a call ends at its deadline even during a name look-up or
a slow response.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from modelserve.client.advice import NOTE_LENGTH, Advice, observed, unchanged, writable
from modelserve.client.asynchronous import AsyncClient, Item, Said
from modelserve.client.exchange import Options, token_from
from modelserve.client.messages import given
from modelserve.client.policy import JOBS_PER_CALL, Breaker, Retries, Timeouts, retry_after_s
from modelserve.contract.calls import CallShape
from modelserve.contract.fields import Guard
from modelserve.contract.requests import MAX_JOBS
from modelserve.errors import ClientError
from scheduler_core.types import Job, Reason, Recommendation

__all__ = ["HttpScale"]

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

    def run(
        self, call: Callable[[AsyncClient], Coroutine[object, object, Result]], limit_s: float | None = None
    ) -> Result:
        """Run a coroutine in the thread and return its result."""
        with self._lock:
            if self._closed:
                raise ClientError(CLOSED)
            if self._pid != os.getpid():
                self._start()
            future = asyncio.run_coroutine_threadsafe(call(self._client), self._loop)
        try:
            return future.result(limit_s)
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

    def __init__(
        self,
        *addresses: str,
        jobs_per_call: int = JOBS_PER_CALL,
        **options: Unpack[Options],
    ) -> None:
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

    def recommend(self, jobs: Sequence[Job]) -> list[Advice]:
        """Recommend a target for each job of a scheduler; raise no error; see `AsyncClient.recommend`."""
        try:
            return self.wait(lambda client: client.recommend(jobs))
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
    erase_user = blocking(AsyncClient.erase_user)
    models = blocking(AsyncClient.models)
    model = blocking(AsyncClient.model)
    importances = blocking(AsyncClient.importances)
    card = blocking(AsyncClient.card)
    ready = blocking(AsyncClient.ready)


ONE_TRY: Final = Retries(tries=2, first_wait_s=0.0, longest_wait_s=0.0, busy=False)
"""Once more at once if no reply came, as on a connection that the server closed while it was idle."""
LATE_S: Final = 0.5
"""Seconds after the deadline at which a round gives up waiting for the client's thread."""


class HttpScale:
    """Callable that asks a service how far the requests of new jobs can shrink, once in each scheduling round.

    A call raises no error and returns a recommendation for every job. If no valid answer comes in time, a job keeps its
    request, with the reason `predictor_unavailable` and the cause in the note. No target is above its request, or below
    the lower bound in the answer. It is a `scheduler_core.shrink.Scale`.

    Parameters
    ----------
    address
        Address of the service, such as `http://127.0.0.1:8080`. Redirects are not followed.
    token, token_file
        Bearer token, or the file that holds it; it is sent to `address` only, and never part of a note.
    ca_file
        PEM file of the trusted certificate authorities; None means those of the system.
    deadline_s
        Maximum seconds for one round: connecting, sending, waiting and reading, for all its HTTP calls together.
    jobs_per_call
        Maximum number of jobs in one HTTP call. More jobs are sent in several calls, one after another; answers that
        come in time are used.
    theta, alpha, guard
        Parameters of Algorithm 1 (`scheduler_core.shrink`); None means the setting of the service. `alpha` is the
        smallest share of a request that is tried. A target without a lower bound is accepted only with guard `none`.
    heed_mode
        Whether jobs keep their requests if the service's mode for them is `observe`. If False, targets are used in
        either mode, as in a simulation.
    breaker
        Circuit breaker; by default it pauses calls for 30 s after three failed rounds in a row.

    Raises
    ------
    BadRequest
        A parameter is not valid.

    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="pai", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> with HttpScale("http://127.0.0.1:9") as scale:  # no service runs there
    ...     [answer] = scale([asked])
    >>> answer.target == asked.request, str(answer.reasons["gpus"])
    (True, 'predictor_unavailable')
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        deadline_s: float = 2.0,
        jobs_per_call: int = MAX_JOBS,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Guard | None = None,
        heed_mode: bool = True,
        breaker: Breaker | None = None,
    ) -> None:
        self.address, self.deadline_s, self.heed_mode = address, deadline_s, heed_mode
        self.breaker = breaker or Breaker(clock=time.monotonic)
        self._token = token_from(token, token_file)
        self._limits = given({"theta": theta, "alpha": alpha, "guard": guard})
        timeouts = Timeouts(connect_s=deadline_s, answer_s=deadline_s, total_s=deadline_s)
        self._thread = LoopThread(
            lambda: AsyncClient(
                address,
                token=self._token,
                ca_file=ca_file,
                timeouts=timeouts,
                retries=ONE_TRY,
                jobs_per_call=jobs_per_call,
            )
        )

    def __repr__(self) -> str:
        return f"HttpScale({self.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, jobs: Sequence[Job]) -> list[Recommendation]:
        """Recommend a target for each job, in the order of `jobs`."""
        if not jobs:
            return []
        if not self.breaker.admits():
            note = f"not sent: the service failed, and rests {self.breaker.rest_s:.0f} s"
            return [self._followed(unchanged(job, note)) for job in jobs]
        bound = self._limits.get("guard") != "none"
        failed: Exception | None
        try:
            advice, failed = self._thread.run(
                lambda client: client.advise(jobs, floors_expected=bound, **self._limits), self.deadline_s + LATE_S
            )
        except Exception as error:  # any error: the scheduler must go on
            note = str(error) if isinstance(error, ClientError) else f"{type(error).__name__}: {error}"
            advice, failed = [unchanged(job, f"{self.address}: {note}") for job in jobs], error
        if failed is None:
            self.breaker.succeeded()
        else:
            rest = failed.retry_after if isinstance(failed, ClientError) else None
            self.breaker.failed(asked_rest_s=retry_after_s(rest, datetime.now(UTC)))
        return [self._followed(each) for each in advice]

    def close(self) -> None:
        """Close the connections; in later rounds all jobs keep their requests."""
        self._thread.close()

    def _followed(self, advice: Advice) -> Recommendation:
        """Return the recommendation to follow; the token is hidden in its note, in case the service repeats it."""
        predicted = Reason.PREDICTOR_UNAVAILABLE not in advice.reasons.values()
        follows = advice.mode == "enforce" or not self.heed_mode
        found = observed(advice) if predicted and not follows else advice
        note = writable(found.note if self._token is None else found.note.replace(self._token, "***"))[:NOTE_LENGTH]
        return replace(found, note=note)

"""Run asynchronous calls in a background thread for blocking callers.

The blocking clients thus share the asynchronous implementation, in which a call ends at its deadline even during a
name look-up or a slow response. Called by `modelserve.client.synchronous` and `modelserve.client.http_scale`.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from typing import Final, Generic, Protocol, Self, TypeVar

from modelserve.client.asynchronous import AsyncClient
from modelserve.client.exchange import Surroundings
from modelserve.client.policy import JOBS_PER_CALL, Retries, Timeouts
from modelserve.errors import ClientError


class Closable(Protocol):
    """An object whose connections must be closed."""

    async def close(self) -> None:
        """Close the connections."""
        ...


Result = TypeVar("Result")
Owned = TypeVar("Owned", bound=Closable)

CLOSED: Final = "found the client closed, expected calls before `close()` only"


class LoopThread(Generic[Owned]):
    """An event loop in a daemon thread, with the asynchronous client that runs in it; safe from several threads.

    After a fork, the child process starts its own thread and connections.
    """

    def __init__(self, make: Callable[[], Owned]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._client, self._pid = self._make(), os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taut-client", daemon=True)
        self._thread.start()

    def run(self, call: Callable[[Owned], Coroutine[object, object, Result]], limit_s: float | None = None) -> Result:
        """Run a coroutine in the thread and return its result.

        Raises
        ------
        ClientError
            The client is closed.
        TimeoutError
            There is no result after `limit_s`; the coroutine is cancelled.
        """
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


class Waiting:
    """Base of blocking clients: an `AsyncClient` that runs in its own thread; safe from several threads."""

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
    ) -> None:
        make = partial(
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

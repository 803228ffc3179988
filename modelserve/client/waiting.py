"""The thread in which a waiting caller's calls run, and what opens, forks and closes around it.

One implementation serves both clients, so that a call ends when its time is over whatever it hangs on: a name that does
not resolve, an answer that trickles. Called by `modelserve.client.synchronous`.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from modelserve.client.asynchronous import AsyncClient
from modelserve.client.exchange import Surroundings
from modelserve.client.policy import JOBS_PER_CALL, Retries, Timeouts
from modelserve.errors import ClientError

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


class Waiting:
    """An `AsyncClient` in a thread of its own, for callers that wait; safe from several threads.

    A process that is forked from its owner's makes connections of its own.
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
        self._shown = f"{type(self).__name__}({', '.join(map(repr, addresses))})"
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

    def wait(self, call: Callable[[AsyncClient], Coroutine[object, object, Result]]) -> Result:
        """Run a call in the thread and return its answer."""
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

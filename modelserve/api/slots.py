"""Slots: how many calls may be at work beside the event loop, and how long one may take.

No call is worked out here. A call that finds no slot, or whose answer takes too long, is refused with 503 and may be
tried again. Called by the routes whose answers take more than a moment.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from modelserve.api.problems import Refusal

Answer = TypeVar("Answer")

THREADS: Final = 4
"""Threads that work at once: enough to keep two cores busy while one of them waits for the store."""


class Slots:
    """A worker's threads, and the calls that wait for them or are at work."""

    def __init__(self, *, limit: int, answer_limit_s: float) -> None:
        self._limit, self._answer_limit_s = limit, answer_limit_s
        self._taken, self._counting = 0, threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="answer")

    @property
    def taken(self) -> int:
        """Calls that wait or are at work."""
        return self._taken

    async def run(self, ask: Callable[[], Answer]) -> Answer:
        """Return what `ask` answers, worked out in a thread.

        A slot is free again when the work has ended, which for an answer that came too late is later than the refusal.

        Raises
        ------
        Refusal
            No slot is free, or the answer takes longer than it may (503).
        """
        if self._taken >= self._limit:
            raise Refusal(503, f"{self._taken} large calls at work, expected fewer than {self._limit}; try again")
        with self._counting:
            self._taken += 1
        work = self._threads.submit(ask)
        work.add_done_callback(self._release)
        waiting = asyncio.wrap_future(work)
        done, _ = await asyncio.wait((waiting,), timeout=self._answer_limit_s)
        if not done:
            waiting.cancel()
            raise Refusal(503, f"no answer within {self._answer_limit_s:g} s; ask for less at once, or try again")
        return waiting.result()

    def close(self) -> None:
        """Let no further call begin."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release(self, _: Future[Answer]) -> None:
        with self._counting:  # called from the thread that did the work
            self._taken -= 1

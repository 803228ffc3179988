"""The interface of an engine, and the engines that run units in this process and in several processes.

Each process is a separate pool: if it dies, only its unit is affected, and another process replaces it.
"""

import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any, Final, Protocol, TypeVar

import cloudpickle

from pipelines.errors import EngineError

__all__ = ["RETRIES", "Engine", "Local", "Processes"]

Shared = TypeVar("Shared")
Unit = TypeVar("Unit")
Result = TypeVar("Result")

RETRIES: Final = 3
"""How often a unit is run again after its process died."""


class Engine(Protocol):
    """Runs units that do not depend on each other."""

    def run(self, work: Callable[[Shared, Unit], Result], shared: Shared, units: Sequence[Unit]) -> Iterator[Result]:
        """Yield `work(shared, unit)` of every unit, in the order of the units.

        A unit must give the same result each time: if the process that ran it died, it is run again, at most `RETRIES`
        times. On Dask the count begins again, at most `RETRIES` times, if the workers that died held all copies of
        `shared`. The first error that a unit raises is raised here, and the other results are dropped. `shared` reaches
        each process once; what `work` caches in it stays there.
        """
        ...


class Local(Engine):
    """Runs the units one after another in this process."""

    def run(self, work: Callable[[Shared, Unit], Result], shared: Shared, units: Sequence[Unit]) -> Iterator[Result]:
        """Yield the result of each unit."""
        return (work(shared, unit) for unit in units)


ORPHANED: Final = 1
_held: Callable[[Any], Any]  # in a worker: the work with its shared data; Any: units of any kind


class Processes(Engine):
    """Runs units in `count` processes, which are started when they are needed and ended with the call."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, work: Callable[[Shared, Unit], Result], shared: Shared, units: Sequence[Unit]) -> Iterator[Result]:
        """Yield the result of each unit, in order."""
        payload = cloudpickle.dumps((work, shared))
        workers = [_Worker(payload) for _ in range(self.count)]
        try:
            yield from _run_on(workers, units)
        finally:
            for worker in workers:
                worker.stop()


def _run_on(workers: Sequence["_Worker"], units: Sequence[Unit]) -> Iterator[Any]:  # Any: the results of the work
    found: dict[int, Any] = {}
    given = 0
    tries: Counter[int] = Counter()
    left = deque(range(len(units)))
    running: dict[Future[Any], tuple[int, _Worker]] = {}
    idle = list(workers)
    while left or running:
        while idle and left:
            index, worker = left.popleft(), idle.pop(0)
            running[worker.start(units[index])] = (index, worker)
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            index, worker = running.pop(future)
            idle.append(worker)
            try:
                found[index] = future.result()
            except BrokenProcessPool as error:
                worker.stop()
                tries[index] += 1
                if tries[index] > RETRIES:
                    raise EngineError(
                        f"{units[index]}: {tries[index]} processes died while they ran it, probably for lack of "
                        "memory; nothing was committed. Run it with fewer processes (--threads gives each one more "
                        "cores), or on a larger machine"
                    ) from error
                left.appendleft(index)
        while given in found:
            yield found.pop(given)
            given += 1


class _Worker:
    """One process, started with its first unit; after `stop` the next unit starts another."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None

    def start(self, unit: object) -> "Future[Any]":  # Any: the result of any work
        """Run a unit in the process; return its future result.

        The process may still run an earlier unit whose result is no longer wanted, or that unit may have killed it.
        """
        if self._pool is not None:
            with suppress(BrokenProcessPool):
                return self._pool.submit(_run, unit)
            self.stop()
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, mp_context=get_context("spawn"), initializer=_begin, initargs=(self._payload, sys.path)
            )
            self._pid = self._pool.submit(os.getpid)
        return self._pool.submit(_run, unit)

    def stop(self) -> None:
        """End the process, also in the middle of a unit."""
        if self._pool is None:
            return
        with suppress(BrokenProcessPool, ProcessLookupError):
            if self._pid is not None and self._pid.done():
                os.kill(self._pid.result(), signal.SIGKILL)
        self._pool.shutdown(cancel_futures=True)
        self._pool = None


def _begin(payload: bytes, path: list[str]) -> None:
    """Prepare a worker: take the shared data, ignore the interrupts of the terminal, end when the caller ends."""
    global _held
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path[:] = path
    _held = partial(*cloudpickle.loads(payload))


def _end_with_parent() -> None:
    caller = parent_process()
    if caller is not None:
        caller.join()
        os._exit(ORPHANED)


def _run(unit: object) -> object:
    return _held(unit)

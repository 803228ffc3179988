"""The interface of an engine, and the engine that runs every unit in this process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeVar

__all__ = ["RETRIES", "Engine", "Local"]

Shared = TypeVar("Shared")
Unit = TypeVar("Unit")
Result = TypeVar("Result")

RETRIES: Final = 3
"""How often a unit is run again after the process that ran it died."""


class Engine(Protocol):
    """Runs units that do not depend on each other."""

    def run(self, work: Callable[[Shared, Unit], Result], shared: Shared, units: Sequence[Unit]) -> Iterator[Result]:
        """Yield `work(shared, unit)` of every unit, in the order of the units.

        A unit must give the same result each time: if the process that ran it died, it is run again, at most `RETRIES`
        times. On Dask the count begins again, at most `RETRIES` times, if the workers that died held all copies of
        `shared`. The first error that a unit raises is raised here, and the other results are dropped. `shared` reaches
        each process once; what `work` caches in it stays there.
        """
        with self.opened(work, shared) as run:
            yield from run(units)

    def opened(
        self, work: Callable[[Shared, Unit], Result], shared: Shared
    ) -> AbstractContextManager[Callable[[Sequence[Unit]], Iterator[Result]]]:
        """Return a block in which processes stay; within it, call the function that it gives as `run`, any times."""
        ...


class Local(Engine):
    """Runs the units one after another in this process."""

    def opened(
        self, work: Callable[[Shared, Unit], Result], shared: Shared
    ) -> AbstractContextManager[Callable[[Sequence[Unit]], Iterator[Result]]]:
        """Return a block that needs no preparation."""
        return nullcontext(lambda units: (work(shared, unit) for unit in units))

"""Notify the user when numba compiles: the first use takes half a minute; later uses load the compiled code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event

__all__ = ["compiling_told"]

_COMPILE = "numba:compile"


class _Once(event.Listener):  # type: ignore[misc]  # numba publishes no types
    """Listener of numba's compiler that calls a function at the first compilation."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002 -- numba fixes the signature
        """Call the function at the first compilation only."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def on_end(self, event: event.Event) -> None:
        """Do nothing when a compilation ends; numba requires this method."""


@contextmanager
def compiling_told(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once if numba compiles within the block; loading compiled code from the cache does not count.

    >>> with compiling_told(lambda: print("compiling")):
    ...     pass
    """
    with event.install_listener(_COMPILE, _Once(tell)):
        yield

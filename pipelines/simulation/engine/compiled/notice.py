"""Word of a compilation as it begins: the first on a machine takes half a minute in silence, later ones are read back.

What is compiled, and where it is kept, is `kernel`'s matter. Called by `pipelines.cli`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event

_COMPILE = "numba:compile"


class _Once(event.Listener):  # type: ignore[misc]  # numba publishes no types
    """Calls a function at the first event that begins."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002 -- numba gives the signature
        """Tell, unless it was told."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def on_end(self, event: event.Event) -> None:
        """Let it end."""


@contextmanager
def compiling_told(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once, when something is first compiled within the block; what was kept is read back unheard.

    >>> with compiling_told(lambda: print("compiling")):
    ...     pass
    """
    with event.install_listener(_COMPILE, _Once(tell)):
        yield

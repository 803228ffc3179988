"""Notice of a compilation: the first on a machine takes half a minute, later runs load it from the cache.

Compiling and caching is in `scheduler_core.kernels.kernel`. Called by `pipelines.cli`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event

_COMPILE = "numba:compile"


class _Once(event.Listener):  # type: ignore[misc]  # numba publishes no types
    """Call a function at the first event."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002 -- numba fixes the signature
        """Call the function, once."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def on_end(self, event: event.Event) -> None:
        """Do nothing."""


@contextmanager
def compiling_told(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once, at the first compilation within the block; loading from the cache does not count.

    >>> with compiling_told(lambda: print("compiling")):
    ...     pass
    """
    with event.install_listener(_COMPILE, _Once(tell)):
        yield

"""Compilation of the loops of this package, and the cache key of compiled code.

No loop is here. Used by every other file of this package and by the compiled engine of `pipelines.simulation`.
Numba caches the compiled code next to the sources, else in its user cache; `NUMBA_CACHE_DIR` sets another folder.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numba

__all__ = ["SOURCES", "Compiled", "digest", "kept", "kernel"]

Compiled = Callable[..., Any]  # numba publishes no types; see the annotations of each kernel


def digest(folder: Path) -> str:
    """Return one digest of all sources in a folder."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


SOURCES: Final = digest(Path(__file__).parent)
"""Digest of all files here. Numba caches a function by the digest of its own file only. Functions that Python calls
close over this digest, so that a change in any file compiles them again."""


_BARE: Final = {"_nrt": False}
"""Without numba's reference counts: kernels allocate nothing, and counting took fifteen times as long as the work."""


def kernel(function: Callable[..., Any]) -> Compiled:
    """Compile a function that other kernels call; it is cached as part of them."""
    made: Compiled = numba.njit(**_BARE)(function)
    return made


def kept(function: Callable[..., Any]) -> Compiled:
    """Compile a function that Python calls, or load it from the cache."""
    try:
        made: Compiled = numba.njit(cache=True, **_BARE)(function)
    except RuntimeError:  # no cache folder is writable: every process compiles again
        made = numba.njit(**_BARE)(function)
    return made

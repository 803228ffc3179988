"""Compilation of this package's loops with numba, and the key under which compiled code is cached.

Numba caches the code next to the sources, else in its user cache; `NUMBA_CACHE_DIR` sets another folder. Used by every
other file of this package and by the compiled engine of `pipelines.simulation`.
"""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numba

__all__ = ["SOURCES", "Compiled", "digest", "inlined", "kept", "kernel"]

Compiled = Callable[..., Any]  # numba has no types for compiled functions: see the annotations of each kernel


def digest(folder: Path) -> str:
    """Return one digest over the Python sources in a folder."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


SOURCES: Final = digest(Path(__file__).parent)
"""Digest of all source files in this folder.

Numba compiles a cached function again only if its own file changes. Functions that Python calls therefore use this
digest, so that a change of any file here compiles them again.
"""


_BARE: Final = {"_nrt": False}
"""Numba options without reference counting: kernels allocate no memory, and counting made them 15 times slower."""


class Kernel:
    """A function that only compiled code calls, compiled without the code that converts arguments from Python.

    That code takes longer to compile than most kernels. A call from Python, as in tests, compiles the function again.
    """

    def __init__(self, function: Callable[..., Any], *, inlined: bool = False) -> None:
        self.py_func = function
        options = {**_BARE, "forceinline": inlined}
        self._compiled = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(function)
        self._numba_type_ = self._compiled._numba_type_  # by which numba finds it in other kernels

    @cached_property
    def _callable(self) -> Compiled:
        made: Compiled = numba.njit(**_BARE)(self.py_func)
        return made

    def __call__(self, *args: Any) -> Any:
        return self._callable(*args)


def kernel(function: Callable[..., Any]) -> Compiled:
    """Compile a function that only other kernels call; it is cached as part of those."""
    return Kernel(function)


def inlined(function: Callable[..., Any]) -> Compiled:
    """Compile as `kernel` does, but copy the code into every caller.

    For short functions of inner loops: a call passes all fields of every array, which takes longer than they do.
    """
    return Kernel(function, inlined=True)


def kept(function: Callable[..., Any]) -> Compiled:
    """Compile a function that Python calls, or load it from numba's cache."""
    try:
        made: Compiled = numba.njit(cache=True, no_cfunc_wrapper=True, **_BARE)(function)
    except RuntimeError:  # no cache folder is writable: every process compiles again
        made = numba.njit(no_cfunc_wrapper=True, **_BARE)(function)
    return made

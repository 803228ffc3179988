"""Compilation of this package's loops with numba, and the key under which compiled code is cached.

Numba is imported at the first compilation only. Numba caches the code next to the sources, else in its user cache;
`NUMBA_CACHE_DIR` sets another folder.
"""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

__all__ = ["SOURCES", "Compiled", "by_reference", "digest", "inlined", "kept", "kernel", "overwrite"]

Compiled = Callable[..., Any]  # numba has no types for compiled functions: see the annotations of each kernel


def digest(folder: Path) -> str:
    """Return one digest over the Python sources in a folder."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


SOURCES: Final = digest(Path(__file__).parent)
"""Digest of all source files in this folder.

Numba compiles a cached function again only if its own file changes. Functions that Python calls therefore capture this
digest, so that a change of any file here compiles them again.
"""


_BARE: Final = {"_nrt": False}
"""Numba options without reference counting: kernels allocate no memory, and counting made them 15 times slower."""


class Kernel:
    """A function that compiled code calls; Python calls it uncompiled, with the same result.

    It is compiled without the code that converts arguments from Python, which takes longer than most kernels.
    """

    def __init__(self, function: Callable[..., Any], *, inlined: bool = False) -> None:
        self.py_func = function
        self._options = {**_BARE, "forceinline": inlined, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    @cached_property
    def _compiled(self) -> Any:
        import numba

        return numba.njit(**self._options)(self.py_func)

    @property
    def _numba_type_(self) -> Any:  # by which numba finds the function in other kernels
        return self._compiled._numba_type_

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)


class Kept:
    """A function that Python calls: compiled, or loaded from numba's cache; `py_func` is the uncompiled function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function

    @cached_property
    def _compiled(self) -> Compiled:
        import numba

        try:
            made: Compiled = numba.njit(cache=True, no_cfunc_wrapper=True, **_BARE)(self.py_func)
        except RuntimeError:  # no cache folder is writable: every process compiles again
            made = numba.njit(no_cfunc_wrapper=True, **_BARE)(self.py_func)
        return made

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*args)


def kernel(function: Callable[..., Any]) -> Compiled:
    """Compile a function that only other kernels call; it is cached as part of those."""
    return Kernel(function)


def inlined(function: Callable[..., Any]) -> Compiled:
    """Compile as `kernel` does, but copy the code into every caller.

    For short functions of inner loops: a call passes all fields of every array, which takes longer than they do.
    """
    return Kernel(function, inlined=True)


def kept(function: Callable[..., Any]) -> Kept:
    """Compile a function that Python calls, or load it from numba's cache."""
    return Kept(function)


class Native:
    """A function with code of its own for compiled kernels, an intrinsic in `references`; Python calls `plain`."""

    def __init__(self, name: str, plain: Callable[..., Any]) -> None:
        self._name = name
        self.plain = plain

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        from scheduler_core.kernels import references

        cpu_target.typing_context.refresh()  # which reads what `references` registered
        return cpu_target.typing_context.resolve_value_type(getattr(references, self._name))

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)


by_reference: Final = Native("refer", lambda named: named)
"""Pass a named tuple on by reference."""

overwrite: Final = Native("overwrite", np.copyto)
"""Copy to the first array the second, of the same type and shape."""

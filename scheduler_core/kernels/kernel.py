"""Compilation of loops with numba, and the cache of what was compiled.

Numba is imported at the first compilation only. Numba caches the code next to the sources, or in its user cache if it
may not write there; `NUMBA_CACHE_DIR` sets another folder.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

__all__ = ["by_reference", "compiling_told", "inlined", "kept", "kernel"]


@cache
def sources(*folders: Path) -> str:
    """Return one digest over the Python sources in folders and below."""
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


_BARE: Final = {"_nrt": False}
"""Numba options without reference counting: kernels allocate no memory, and counting made them 15 times slower."""


class Kernel:
    """A function that compiled code calls; Python calls it uncompiled, with the same result.

    It is cached as part of its callers, without the code that converts arguments from Python.
    """

    def __init__(self, function: Callable[..., Any], *, inlined: bool = False) -> None:
        self.py_func = function
        self._options = {**_BARE, "forceinline": inlined, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    @cached_property
    def _compiled(self) -> Any:
        import numba

        from scheduler_core.kernels.references import PartCompiler

        return numba.njit(**self._options, pipeline_class=PartCompiler)(self.py_func)

    @property
    def _numba_type_(self) -> Any:  # by which numba finds the function in other kernels
        return self._compiled._numba_type_

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)


class Kept:
    """A function that Python calls: compiled, or loaded from numba's cache; `py_func` is the uncompiled function.

    It is compiled again if any file of the kernels or of its own folder changed. `is_loaded` states whether this
    process has the compiled function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func, self.is_loaded = function, False

    @cached_property
    def _compiled(self) -> Any:
        import numba

        try:
            made = numba.njit(cache=True, no_cfunc_wrapper=True, **_BARE)(self.py_func)
        except RuntimeError:  # no cache folder is writable: every process compiles again
            return numba.njit(no_cfunc_wrapper=True, **_BARE)(self.py_func)
        # Numba itself would compare the time of the function's own file only.
        own = Path(self.py_func.__code__.co_filename)
        made._cache._cache_file._source_stamp = sources(Path(__file__).parent, own.parent)
        return made

    @property
    def is_ready(self) -> bool:
        """Return whether the function is loaded, or numba's cache has the code of its present sources."""
        if self.is_loaded or self._compiled.stats.cache_path is None:
            return self.is_loaded
        cache, codegen = self._compiled._cache, self._compiled.targetctx.codegen()
        _, *present = cache._index_key(None, codegen)
        return any(made == present for _, *made in cache._cache_file._load_index())

    def __call__(self, *args: Any) -> Any:
        if not self.is_loaded:
            self._load(args)
        return self._compiled(*args)

    def _load(self, args: tuple[Any, ...]) -> None:
        """Compile or load; if another process compiles functions of the same file, wait, and load its result."""
        import numba

        with Path(self.py_func.__code__.co_filename).open() as file, suppress(OSError):  # some disks have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
            self._compiled.compile(tuple(map(numba.typeof, args)))
        self.is_loaded = True


kernel, kept = Kernel, Kept


def inlined(function: Callable[..., Any]) -> Kernel:
    """Compile as `kernel` does, but copy the code into every caller.

    Use it for short functions in inner loops, where a call takes longer: it passes all fields of every array.
    """
    return Kernel(function, inlined=True)


class ByReference:
    """Passes a named tuple on by reference: to kernels by the intrinsic `references.refer`, in Python as it is."""

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        from scheduler_core.kernels.references import refer

        cpu_target.typing_context.refresh()  # which reads what `references` registered
        return cpu_target.typing_context.resolve_value_type(refer)

    def __call__(self, named: Any) -> Any:
        return named


by_reference: Final = ByReference()


@contextmanager
def compiling_told(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once if numba compiles within the block; loading compiled code from the cache does not count.

    >>> with compiling_told(lambda: print("compiling")):
    ...     pass
    """
    from numba.core.event import install_recorder

    def begun(_: Any) -> None:
        recorder.on_start = ignored
        tell()

    with install_recorder("numba:compile") as recorder:
        ignored, recorder.on_start = recorder.on_start, begun
        yield

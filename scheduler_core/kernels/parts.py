"""Compilation of kernels as parts: they are optimized, and made machine code, only in the function that Python calls.

Numba does both for each function with all that it calls; for kernels, twelve levels deep, that took half of the time.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["PartCompiler"]


class _Part(JITCodeLibrary):  # type: ignore[misc]  # numba publishes no types
    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None: ...  # of `codegen`: it would write to machine code


class PartCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, which makes a part of each function."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, library or _Part(target.codegen(), "kernel"), *rest)

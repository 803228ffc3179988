"""Two changes to numba, which compile the kernels in a quarter of the time.

- Named tuples are passed by reference: one pointer instead of all fields of all their arrays. A call that passes a
  state by value copies six hundred numbers, which took most of the time of compiling and of running.
- Kernels are compiled as parts: they are optimized, and made machine code, only in the function that Python calls.
  Numba does both for each function with all that it calls; for kernels, twelve levels deep, that took half of the time.
"""

from hashlib import sha256
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr_generic
from numba.core.types.containers import BaseNamedTuple
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, register_model

__all__ = ["PartCompiler", "refer"]


class Reference(types.Type):
    """The type of a pointer to a named tuple `of` in the frame of the kernel that Python called; it never changes."""

    def __init__(self, of: Any) -> None:
        self.of = of
        # Numba writes the names of types into those of functions: a state's own has thousands of letters.
        super().__init__(f"Reference({of.instance_class.__name__}, {sha256(of.name.encode()).hexdigest()[:16]})")


@register_model(Reference)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, reference: Reference) -> None:
        super().__init__(manager, reference, manager.lookup(reference.of).get_value_type().as_pointer())


def _is_named(field: Any) -> bool:
    return isinstance(field, BaseNamedTuple)


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> Any:
        if name not in reference.of.fields:
            return None
        field = reference.of.types[reference.of.fields.index(name)]
        return Reference(field) if _is_named(field) else field


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _field(_: Any, builder: ir.IRBuilder, reference: Reference, pointer: ir.Value, name: str) -> ir.Value:
    place = reference.of.fields.index(name)
    at = cgutils.gep_inbounds(builder, pointer, 0, place)
    return at if _is_named(reference.of.types[place]) else _loaded(builder, at)


def _loaded(builder: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Load a field number by number; each is marked as constant, so that LLVM loads it once outside of loops."""
    kind = pointer.type.pointee
    if not isinstance(kind, ir.Aggregate):
        number = builder.load(pointer)
        number.set_metadata("invariant.load", builder.module.add_metadata([]))
        return number
    value = ir.Constant(kind, ir.Undefined)
    for place in range(len(kind)):
        value = builder.insert_value(value, _loaded(builder, cgutils.gep_inbounds(builder, pointer, 0, place)), place)
    return value


@intrinsic  # type: ignore[untyped-decorator]
def refer(_: Any, named: Any) -> Any:
    """Return a reference to a named tuple, which is copied to the frame of the calling function."""

    def stored(_: Any, builder: ir.IRBuilder, __: Any, values: Any) -> ir.Value:
        pointer = cgutils.alloca_once_value(builder, values[0])
        # LLVM must not see that the memory had other content before: its fields are loaded as constants.
        hidden = ir.FunctionType(pointer.type, [pointer.type])
        return builder.asm(hidden, "", "=r,0,~{memory}", [pointer], True)

    return Reference(named)(named), stored


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

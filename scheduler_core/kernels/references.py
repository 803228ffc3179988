"""Named tuples that compiled code passes by reference: one pointer instead of all fields of all their arrays.

A call that passes a state by value copies six hundred numbers, which took most of the time of compiling and of running.
"""

from hashlib import sha256
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, register_model

__all__ = ["refer"]


class Reference(types.Type):  # type: ignore[misc]  # numba publishes no types
    """The type of a pointer to a named tuple in the frame of the kernel that Python called; its fields never change."""

    def __init__(self, of: types.BaseNamedTuple) -> None:
        self.of = of
        # Numba writes the names of types into those of functions: a state's own has thousands of letters.
        super().__init__(f"Reference({of.instance_class.__name__}, {sha256(of.name.encode()).hexdigest()[:16]})")


@register_model(Reference)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, reference: Reference) -> None:
        super().__init__(manager, reference, manager.lookup(reference.of).get_value_type().as_pointer())


def _is_named(field: types.Type) -> bool:
    return isinstance(field, types.BaseNamedTuple)


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> types.Type | None:
        if name not in reference.of.fields:
            return None
        field = reference.of.types[reference.of.fields.index(name)]
        return Reference(field) if _is_named(field) else field


@lower_getattr_generic(Reference)  # type: ignore[misc]
def _field(_: Any, builder: ir.IRBuilder, reference: Reference, pointer: ir.Value, name: str) -> ir.Value:
    place = reference.of.fields.index(name)
    at = cgutils.gep_inbounds(builder, pointer, 0, place)
    return at if _is_named(reference.of.types[place]) else builder.load(at)


@intrinsic  # type: ignore[misc]
def refer(_: Any, named: types.BaseNamedTuple) -> Any:
    """Return a reference to a named tuple, which is copied to the frame of the calling function."""

    def stored(_: Any, builder: ir.IRBuilder, __: Any, values: Any) -> ir.Value:
        return cgutils.alloca_once_value(builder, values[0])

    return Reference(named)(named), stored

"""Gangs: their demands and allocations in integer units, which make allocating and releasing exact."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.devices import Taken, shape
from scheduler_core.errors import BadInput
from scheduler_core.types import Request

__all__ = ["ANY_GPU_TYPE", "Demand"]

MILLI: Final = 1000
MIB_PER_GIB: Final = 1024
UNITS: Final = (MILLI, MIB_PER_GIB, MILLI)
"""Number of integer units in one core, one GiB and one GPU: milli-cores, MiB and milli-GPUs."""

GPUS: Final = 2
"""Index of GPUs in `UNITS`."""

ALTERNATIVES: Final = "|"
"""Separator between alternative GPU types in one text."""

UNIT_SLACK: Final = 1e-6
"""Tolerance in units for floating-point noise when amounts are rounded to whole units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Resources that a gang requests: units per instance (milli-cores, MiB, milli-GPUs), and number of instances.

    `gpu_type` restricts the gang to machines of that type, or of several ("V100M16|V100M32"); None allows any machine.
    """

    units: tuple[int, int, int]
    instances: int
    gpu_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The machines and devices that a gang takes; `counts` holds pairs (machine index, number of instances).

    `devices` lists (machine, device, milli-GPUs) for every device of every instance; it is empty when GPUs are pooled.
    """

    demand: Demand
    counts: tuple[tuple[int, int], ...]
    devices: Taken = ()


def demand_of(request: Request, instances: int, gpu_type: str | None = None) -> Demand:
    """Convert a request to integer units, rounded up; an unknown amount (NaN) becomes 0."""
    if not (isinstance(instances, int | np.integer) and instances >= 1):
        raise BadInput(f"gang: found {instances!r} instances, expected at least 1")
    cpu, mem, gpu = (_rounded_up(value, unit) for value, unit in zip(request.row(), UNITS, strict=True))
    return Demand(units=(cpu, mem, gpu), instances=instances, gpu_type=gpu_type)


def in_devices(demand: Demand) -> Demand:
    """Return the demand with a request of more than one GPU rounded up to whole GPUs, as devices require.

    >>> in_devices(Demand(units=(0, 0, 1500), instances=2)).units
    (0, 0, 2000)
    """
    cpu, mem, gpu = demand.units
    count, milli = shape(gpu)
    return demand if count * milli == gpu else replace(demand, units=(cpu, mem, count * milli))


def _rounded_up(value: float, unit: int) -> int:
    try:
        if math.isnan(value):
            return 0
    except TypeError:
        raise BadInput(f"request: found {value!r}, expected a number, or NaN for an unknown amount") from None
    if value < 0.0 or math.isinf(value):
        raise BadInput(f"request: found {value}, expected a finite amount of at least 0")
    return math.ceil(value * unit - UNIT_SLACK)


ANY_GPU_TYPE = -1
"""Code for gangs that allow any GPU type."""

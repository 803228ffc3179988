"""What a gang takes, and where it has it: requests in integer units, so that taking and giving back are exact.

Machines and what is free on them are in `cluster`, which hands these names on.
Called by every module here that places, starts or stops gangs.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.devices import Taken, shape
from scheduler_core.errors import BadInput
from scheduler_core.types import Request

MILLI: Final = 1000
MIB_PER_GIB: Final = 1024
UNITS: Final = (MILLI, MIB_PER_GIB, MILLI)
"""Integer units per core, GiB and GPU: milli-cores, MiB, milli-GPUs."""

GPUS: Final = 2
"""Where GPUs are in units."""

ALTERNATIVES: Final = "|"
"""Between GPU types of which any will do."""

UNIT_SLACK: Final = 1e-6
"""Part of a unit that a product may exceed a whole number by and still count as that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A gang in integer units: what each instance takes (milli-cores, MiB, milli-GPUs), and how many there are.

    `gpu_type` restricts the machines to those of that type, or of one of several ("V100M16|V100M32"); None takes any.
    """

    units: tuple[int, int, int]
    instances: int
    gpu_type: str | None = None

    @property
    def milli_gpus(self) -> int:
        """Return the whole gang's milli-GPUs."""
        return self.units[2] * self.instances


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Where a gang runs: `counts` pairs a machine's index with the instances it hosts.

    `devices` are the GPUs it takes, (machine, device, milli-GPUs) of every device of every instance; empty when pooled.
    """

    demand: Demand
    counts: tuple[tuple[int, int], ...]
    devices: Taken = ()


def demand_of(request: Request, instances: int, gpu_type: str | None = None) -> Demand:
    """Round a request up to integer units; a resource the trace lacks (NaN) takes nothing.

    Raises
    ------
    BadInput
        If an amount is no number, negative or infinite, or there is not at least one instance.

    >>> demand_of(Request(cpu_cores=0.55 * 6, mem_gib=29.3, gpus=0.25), 4).units
    (3300, 30004, 250)
    """
    if not (isinstance(instances, int | np.integer) and instances >= 1):
        raise BadInput(f"gang: found {instances!r} instances, expected at least 1")
    cpu, mem, gpu = (_rounded_up(value, unit) for value, unit in zip(request.row(), UNITS, strict=True))
    return Demand(units=(cpu, mem, gpu), instances=instances, gpu_type=gpu_type)


def in_devices(demand: Demand) -> Demand:
    """Return what a gang takes of machines whose GPUs are shared by devices: whole ones beyond one GPU.

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
        raise BadInput(f"request: found {value!r}, expected a number, or NaN for what is not told") from None
    if value < 0.0 or math.isinf(value):
        raise BadInput(f"request: found {value}, expected a finite amount of at least 0")
    return math.ceil(value * unit - UNIT_SLACK)


ANY_GPU_TYPE = -1
"""Code of a gang that takes machines of any GPU type."""

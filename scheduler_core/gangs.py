"""Gangs: their demands, allocations and devices. Integer units make allocating and releasing exact.

Arrays of free milli-GPUs have the shape (machines, most GPUs of any machine), with 0 where a machine has no such device
or is down. `placement` chooses machines.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import IntArray, Request

__all__ = ["ANY_GPU_TYPE", "WHOLE", "Demand", "Sharing", "allows", "rounded", "shape"]

Sharing = Literal["pooled", "devices"]
"""How a machine's GPUs are counted: `pooled` as one total, `devices` one by one."""

SHARINGS: Final[tuple[Sharing, ...]] = ("pooled", "devices")

WHOLE: Final = 1000
"""Milli-GPUs of one device."""

Taken = tuple[tuple[int, int, int], ...]
"""The devices that a gang takes: (machine, device, milli-GPUs) for each device, instance after instance."""


def shape(units_gpu: int) -> tuple[int, int]:
    """Return how many devices an instance takes, and how many milli-GPUs of each device.

    A request of up to one GPU takes a part of one device; a larger one takes whole devices, rounded up.

    >>> [shape(milli) for milli in (0, 300, 1000, 1500, 4000)]
    [(0, 0), (1, 300), (1, 1000), (2, 1000), (4, 1000)]
    """
    if units_gpu <= WHOLE:
        return (1, units_gpu) if units_gpu else (0, 0)
    return -(-units_gpu // WHOLE), WHOLE


def rounded(units_gpu: IntArray) -> IntArray:
    """Return the milli-GPUs that instances take: as requested up to one GPU, rounded up to whole devices above.

    >>> rounded(np.array([0, 300, 1000, 1500, 4000])).tolist()
    [0, 300, 1000, 2000, 4000]
    """
    return np.where(units_gpu <= WHOLE, units_gpu, -(-units_gpu // WHOLE) * WHOLE)


def whole_devices(gpus: Sequence[int]) -> IntArray:
    """Return milli-GPUs (machines, most GPUs of any machine) with all devices idle; 0 where a machine has fewer.

    >>> whole_devices([1, 2]).tolist()
    [[1000, 0], [1000, 1000]]
    """
    counts = np.array(gpus, dtype=np.int64)
    return np.where(np.arange(counts.max()) < counts[:, None], WHOLE, 0)


def slots(free: IntArray, units_gpu: int) -> IntArray:
    """Return how many instances of `units_gpu` milli-GPUs each, above 0, the devices of each machine take (machines,).

    >>> slots(np.array([[500, 500], [1000, 300]]), 400).tolist(), slots(np.array([[500, 500]]), 600).tolist()
    ([2, 2], [0])
    """
    count, milli = shape(units_gpu)
    # Sum as a matrix product, since numpy is slow to sum along a short axis.
    hosted = (free // milli) @ np.ones(free.shape[1], dtype=np.int64)
    return np.asarray(hosted // count, dtype=np.int64)


def bound(free: Sequence[Sequence[int]], units_gpu: int, counts: Sequence[tuple[int, int]]) -> Taken:
    """Choose devices on the machines of `counts` by best fit: the device with the least sufficient free GPU.

    Instances of whole GPUs take the idle devices of lowest index. Each machine must have enough `slots`.

    >>> bound([[1000, 400, 700]], 300, [(0, 3)])
    ((0, 1, 300), (0, 2, 300), (0, 2, 300))
    """
    count, milli = shape(units_gpu)
    if not count:
        return ()
    taken: list[tuple[int, int, int]] = []
    for machine, instances in counts:
        left, needed = free[machine], instances * count
        # A device that was chosen has the least free GPU afterwards, too, so it is filled before the next.
        for device in sorted((at for at, has in enumerate(left) if has >= milli), key=left.__getitem__):
            fitting = min(left[device] // milli, needed)
            taken += [(machine, device, milli)] * fitting
            needed -= fitting
    return tuple(taken)


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


def allows(requested: str | None, gpu_type: str | None) -> bool:
    """Return whether a machine's GPU type is allowed by a request; None requests any type.

    >>> allows("T4|P100", "T4"), allows("T4", None), allows(None, None)
    (True, False, True)
    """
    return requested is None or gpu_type in requested.split(ALTERNATIVES)


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

"""GPU accounting by device: how much of which devices an instance takes, and how many instances fit a machine.

Arrays of free milli-GPUs have the shape (machines, most GPUs of any machine), with 0 where a machine has no such device
or is down. `placement` chooses machines.
"""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from scheduler_core.types import IntArray

__all__ = ["WHOLE", "Sharing", "rounded", "shape"]

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

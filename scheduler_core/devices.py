"""GPUs by device: what an instance takes of them, how many instances fit, and which devices are taken.

Free milli-GPUs are (machines, most GPUs of any machine), 0 where there is no such device or the machine is down.
Machines are chosen in `placement`. Called by `cluster`, `demand`, `machines`, `pending` and the simulator.
"""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from scheduler_core.types import IntArray

__all__ = ["WHOLE", "Sharing", "by_host", "no_tenants", "rounded", "shape"]

Sharing = Literal["pooled", "devices"]
"""Accounting of a machine's GPUs: one total, or device by device."""

SHARINGS: Final[tuple[Sharing, ...]] = ("pooled", "devices")

WHOLE: Final = 1000
"""Milli-GPUs of one device."""

Taken = tuple[tuple[int, int, int], ...]
"""(machine, device, milli-GPUs) of every device of every instance, one instance after the other."""


def shape(units_gpu: int) -> tuple[int, int]:
    """Return how many devices an instance takes, and how many milli-GPUs of each.

    Up to one GPU comes from one device; more is whole devices, rounded up.

    >>> [shape(milli) for milli in (0, 300, 1000, 1500, 4000)]
    [(0, 0), (1, 300), (1, 1000), (2, 1000), (4, 1000)]
    """
    if units_gpu <= WHOLE:
        return (1, units_gpu) if units_gpu else (0, 0)
    return -(-units_gpu // WHOLE), WHOLE


def rounded(units_gpu: IntArray) -> IntArray:
    """Return the milli-GPUs that instances take: as requested up to one GPU, whole devices above.

    >>> rounded(np.array([0, 300, 1000, 1500, 4000])).tolist()
    [0, 300, 1000, 2000, 4000]
    """
    return np.where(units_gpu <= WHOLE, units_gpu, -(-units_gpu // WHOLE) * WHOLE)


def whole_devices(gpus: Sequence[int]) -> IntArray:
    """Return the milli-GPUs of every device, given the GPUs per machine (machines, most GPUs of any machine).

    >>> whole_devices([1, 2]).tolist()
    [[1000, 0], [1000, 1000]]
    """
    counts = np.array(gpus, dtype=np.int64)
    return np.where(np.arange(counts.max()) < counts[:, None], WHOLE, 0)


def slots(free: IntArray, units_gpu: int) -> IntArray:
    """Return how many instances of more than 0 milli-GPUs each machine's devices could take (machines,).

    >>> slots(np.array([[500, 500], [1000, 300]]), 400).tolist(), slots(np.array([[500, 500]]), 600).tolist()
    ([2, 2], [0])
    """
    count, milli = shape(units_gpu)
    # As a product: numpy is slow to sum along so short an axis.
    hosted = (free // milli) @ np.ones(free.shape[1], dtype=np.int64)
    return np.asarray(hosted // count, dtype=np.int64)


def bound(free: IntArray, units_gpu: int, counts: Sequence[tuple[int, int]]) -> Taken:
    """Choose devices on the machines of `counts` by best fit: the one with least free GPU that suffices.

    Whole devices are the idle ones of lowest index. Each machine must host its count of instances by `slots`.

    >>> bound(np.array([[1000, 400, 700]]), 300, [(0, 3)])
    ((0, 1, 300), (0, 2, 300), (0, 2, 300))
    """
    count, milli = shape(units_gpu)
    if not count:
        return ()
    taken: list[tuple[int, int, int]] = []
    for machine, instances in counts:
        left = free[machine].tolist()
        for _ in range(instances * count):
            device = min((at for at, has in enumerate(left) if has >= milli), key=left.__getitem__)
            left[device] -= milli
            taken.append((machine, device, milli))
    return tuple(taken)


def moved(free: IntArray, taken: Taken, sign: int) -> None:
    """Release (1) or allocate (-1) device shares, in place."""
    for machine, device, milli in taken:
        free[machine, device] += sign * milli


def no_tenants(free: IntArray) -> IntArray:
    """Return tenant counts of zero (machines, most GPUs + 1)."""
    return np.zeros((free.shape[0], free.shape[1] + 1), dtype=np.int64)


def tenancy(units_gpu: int) -> int:
    """Return the tenant column of an instance with GPUs: 0 for a part of a GPU, k for k whole GPUs.

    >>> [tenancy(milli) for milli in (300, 1000, 1500)]
    [0, 1, 2]
    """
    count, milli = shape(units_gpu)
    return count if milli == WHOLE else 0


def settled(tenants: IntArray, units_gpu: int, counts: Sequence[tuple[int, int]], sign: int) -> None:
    """Add (1) or remove (-1) instances with GPUs in the tenant counts, in place."""
    for machine, instances in counts:
        tenants[machine, tenancy(units_gpu)] += sign * instances


def by_host(counts: Sequence[tuple[int, int]], taken: Taken, devices: int) -> IntArray:
    """Return the milli-GPUs taken of each device of each host, in the order of `counts` (hosts, devices).

    >>> by_host([(4, 2)], ((4, 0, 300), (4, 0, 300)), 2).tolist()
    [[600, 0]]
    """
    rows = np.zeros((len(counts), devices), dtype=np.int64)
    place = {machine: row for row, (machine, _) in enumerate(counts)}
    for machine, device, milli in taken:
        rows[place[machine], device] += milli
    return rows

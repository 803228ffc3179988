"""Fragmentation: how much free GPU of a machine or a cluster a target workload could not use, and why.

Pure functions of free capacity. `kernels.scores` computes the same for placements, machine by machine.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from scheduler_core.cluster import ALTERNATIVES, Room
from scheduler_core.errors import BadInput
from scheduler_core.target import TargetWorkload
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["USES", "FreeNodes", "Use", "allows", "weighed_uses"]


class Use(IntEnum):
    """Classes of a machine's free GPU by whether an instance shape could use it; all but `USABLE` are fragmentation.

    If a machine can host the shape, its devices with too little free GPU count as `LACKS_GPU`. The published simulator
    of Weng et al. calls the classes, in this order, q3_satisfied, q2_lack_gpu, q4_lack_cpu, q1_lack_both, no_access,
    xl_satisfied and xr_lack_cpu.
    """

    USABLE = 0
    LACKS_GPU = 1
    LACKS_CPU = 2
    LACKS_BOTH = 3
    OTHER_MODEL = 4
    ASKS_NO_GPU = 5
    ASKS_NO_GPU_LACKS_CPU = 6


USES: Final = tuple(use.name.lower() for use in Use)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreeNodes:
    """Free capacity of n machines: milli-cores (n,), milli-GPUs of every device (n, most GPUs), and GPU types."""

    cpu_milli: IntArray
    devices: IntArray
    gpu_type: tuple[str | None, ...]


def free_nodes(room: Room) -> FreeNodes:
    """Return the free capacity of a `Room` with GPUs shared by device; machines that are down have nothing free."""
    if room.devices is None:
        raise BadInput("fragmentation: found a room with pooled GPUs, expected sharing by devices")
    return FreeNodes(cpu_milli=room.free[:, 0], devices=room.devices, gpu_type=gpu_types_of(room))


def gpu_types_of(room: Room) -> tuple[str | None, ...]:
    """Return each machine's GPU type."""
    names: list[str | None] = [None] * len(room.up)
    for name, machines in room.of_type.items():
        for machine in np.flatnonzero(machines).tolist():
            names[machine] = name
    return tuple(names)


def allows(requested: str | None, gpu_type: str | None) -> bool:
    """Return whether a machine's GPU type is allowed by a request; None requests any type.

    >>> allows("T4|P100", "T4"), allows("T4", None), allows(None, None)
    (True, False, True)
    """
    return requested is None or gpu_type in requested.split(ALTERNATIVES)


def uses(nodes: FreeNodes, target: TargetWorkload) -> IntArray:
    """Return each machine's free milli-GPUs split by `Use`, for each of k shapes of the target (n, k, 7)."""
    free, devices = nodes.devices.sum(axis=1), nodes.devices[:, None, :]
    large = devices >= target.milli[None, :, None]
    small = np.where(large, 0, devices).sum(axis=2)
    fits_gpu, fits_cpu = large.sum(axis=2) >= target.count, nodes.cpu_milli[:, None] >= target.cpu_milli
    found = np.zeros((len(free), len(target), len(Use)), dtype=np.int64)
    for use, machines in _cases(nodes, target, fits_gpu, fits_cpu).items():
        found[:, :, use] = np.where(machines, free[:, None], 0)
    hosted = found[:, :, Use.USABLE] > 0
    found[:, :, Use.LACKS_GPU] += np.where(hosted, small, 0)
    found[:, :, Use.USABLE] -= np.where(hosted, small, 0)
    return found


def _cases(nodes: FreeNodes, target: TargetWorkload, fits_gpu: BoolArray, fits_cpu: BoolArray) -> dict[Use, BoolArray]:
    """Classify all pairs of machine and shape: return a mask (n, k) per `Use`; each pair is in exactly one class."""
    wants_gpu = target.count > 0
    distinct = sorted(set(nodes.gpu_type), key=str)
    open_to = {
        kind: np.array([allows(requested, kind) for requested in target.gpu_type], dtype=np.bool_) for kind in distinct
    }
    reached = np.array([open_to[kind] for kind in nodes.gpu_type], dtype=np.bool_).reshape(fits_gpu.shape)
    open_ = wants_gpu & reached
    return {
        Use.USABLE: open_ & fits_gpu & fits_cpu,
        Use.LACKS_GPU: open_ & ~fits_gpu & fits_cpu,
        Use.LACKS_CPU: open_ & fits_gpu & ~fits_cpu,
        Use.LACKS_BOTH: open_ & ~fits_gpu & ~fits_cpu,
        Use.OTHER_MODEL: wants_gpu & ~reached,
        Use.ASKS_NO_GPU: ~wants_gpu & fits_cpu,
        Use.ASKS_NO_GPU_LACKS_CPU: ~wants_gpu & ~fits_cpu,
    }


def unusable(nodes: FreeNodes, target: TargetWorkload) -> IntArray:
    """Return the free milli-GPUs of each machine that each shape could not use (n, k), F_n(m) in Weng et al.

    All free milli-GPUs count if the shape requests no GPU, does not allow the machine's GPU type, or does not fit by
    CPU or devices. Otherwise only devices with less free GPU than the shape needs of one device count.

    References
    ----------
    Weng et al., USENIX ATC 2023, section 3.

    Examples
    --------
    >>> from scheduler_core.cluster import Demand
    >>> from scheduler_core.target import target_of
    >>> nodes = FreeNodes(cpu_milli=np.array([8000]), devices=np.array([[1000, 400]]), gpu_type=("T4",))
    >>> unusable(nodes, target_of([Demand(units=(4000, 0, 500), instances=1)])).tolist()
    [[400]]
    """
    found = uses(nodes, target)
    return np.asarray(found.sum(axis=2) - found[:, :, Use.USABLE], dtype=np.int64)


def fragmentation(nodes: FreeNodes, target: TargetWorkload) -> FloatArray:
    """Return each machine's mean free milli-GPUs that pods of the target could not use (n,), F_n(M) in Weng et al."""
    return np.asarray(unusable(nodes, target) @ target.pods / max(target.total, 1), dtype=np.float64)


def cluster_fragmentation(nodes: FreeNodes, target: TargetWorkload) -> float:
    """Return the mean free milli-GPUs of the cluster that a pod of the target could not use, F in Weng et al."""
    return int((unusable(nodes, target) @ target.pods).sum()) / max(target.total, 1)


def weighed_uses(nodes: FreeNodes, target: TargetWorkload) -> IntArray:
    """Return the free milli-GPUs of each machine by `Use` (n, 7), summed over the target's pods, as exact integers."""
    return np.asarray(np.einsum("nku,k->nu", uses(nodes, target), target.pods), dtype=np.int64)

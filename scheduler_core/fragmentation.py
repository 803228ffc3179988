"""Fragmentation: how much free GPU of a machine or a cluster a target workload could not use, and why.

Pure functions of free capacity. `kernels.scores` computes the same for placements, machine by machine.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from scheduler_core.cluster import ALTERNATIVES
from scheduler_core.target import TargetWorkload
from scheduler_core.types import IntArray

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


def allows(requested: str | None, gpu_type: str | None) -> bool:
    """Return whether a machine's GPU type is allowed by a request; None requests any type.

    >>> allows("T4|P100", "T4"), allows("T4", None), allows(None, None)
    (True, False, True)
    """
    return requested is None or gpu_type in requested.split(ALTERNATIVES)


def uses(nodes: FreeNodes, target: TargetWorkload) -> IntArray:
    """Return each machine's free milli-GPUs split by `Use`, for each of k shapes of the target (n, k, 7).

    All free milli-GPUs of a machine are of the class of the shape. If they are `USABLE`, devices with less free GPU
    than the shape needs of one device count as `LACKS_GPU`.
    """
    free, devices = nodes.devices.sum(axis=1), nodes.devices[:, None, :]
    large = devices >= target.milli[None, :, None]
    small = np.where(large, 0, devices).sum(axis=2)
    lacks_gpu, lacks_cpu = large.sum(axis=2) < target.count, nodes.cpu_milli[:, None] < target.cpu_milli
    kinds = {kind: [allows(requested, kind) for requested in target.gpu_type] for kind in set(nodes.gpu_type)}
    reached = np.array([kinds[kind] for kind in nodes.gpu_type], dtype=np.bool_).reshape(lacks_gpu.shape)
    with_gpu = np.where(reached, Use.LACKS_GPU * lacks_gpu + Use.LACKS_CPU * lacks_cpu, Use.OTHER_MODEL)
    without = np.where(lacks_cpu, Use.ASKS_NO_GPU_LACKS_CPU, Use.ASKS_NO_GPU)
    use = np.where(target.count > 0, with_gpu, without)
    found = np.where(use[:, :, None] == np.arange(len(Use)), free[:, None, None], 0).astype(np.int64)
    hosted = np.where(use == Use.USABLE, small, 0)
    found[:, :, Use.LACKS_GPU] += hosted
    found[:, :, Use.USABLE] -= hosted
    return found


def weighed_uses(nodes: FreeNodes, target: TargetWorkload) -> IntArray:
    """Return the free milli-GPUs of each machine by `Use` (n, 7), summed over the target's pods, as exact integers."""
    return np.asarray(np.einsum("nku,k->nu", uses(nodes, target), target.pods), dtype=np.int64)

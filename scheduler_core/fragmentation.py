"""Fragmentation: how much free GPU of a machine or a cluster a target workload could not use, and why.

`kernels.scores` computes the same for placements, machine by machine; `node_ranks` orders machines by it for schedulers
that ask for a score of every machine instead of one machine, and count GPUs without telling devices apart.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from scheduler_core.gangs import ANY_GPU_TYPE, WHOLE, Demand, allows, shape, whole_devices
from scheduler_core.kernels import scores
from scheduler_core.kernels.records import JOB
from scheduler_core.kernels.state import Room, cache_of, queue_of, uncompiled
from scheduler_core.target import TargetWorkload, goal_of
from scheduler_core.types import FloatArray, IntArray

__all__ = ["USES", "FreeNodes", "Use", "node_ranks", "weighed_uses"]


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


def node_ranks(demand: Demand, free: IntArray, left_over: FloatArray, target: TargetWorkload) -> FloatArray:
    """Return the rank of each machine that can host an instance of a demand (n,), from 0 (worst) to 1 (best).

    `free` (n, 3) are free milli-cores, MiB and milli-GPUs; parts of a GPU do not count, and all machines have room for
    the instance. The best machine has the highest score of `fgd` for the target. Among equals it has the least
    `left_over` (n,), the machine's free resources after the instance. Equal machines have equal ranks. GPU types are
    ignored.

    Examples
    --------
    >>> from scheduler_core.target import target_of
    >>> four, one = (Demand(units=(1000, 0, milli), instances=1) for milli in (4000, 1000))
    >>> free = np.array([[64000, 0, 4000], [64000, 0, 1000]])
    >>> node_ranks(one, free, np.array([3.0, 0.0]), target_of([four])).tolist()  # keeps four GPUs together
    [0.0, 1.0]
    """
    count, _ = shape(demand.units[2])
    rows, row_of = np.unique(free // (1, 1, WHOLE), axis=0, return_inverse=True)
    devices = whole_devices(rows[:, 2].tolist())
    empty = np.zeros((len(rows), devices.shape[1] + 1), dtype=np.int64)
    room = Room(free=rows * (1, 1, WHOLE), freeness=np.zeros(len(rows)), devices=devices, tenants=empty)
    cache = cache_of(1, room, np.zeros(len(rows), dtype=np.int64), room.free.max(axis=0))
    for own, given in zip(cache.room, room, strict=True):
        own[:] = given
    bucket = np.array([[demand.units[0], demand.units[1], count * WHOLE, 1, ANY_GPU_TYPE, 0]], dtype=np.int64)
    queue = uncompiled(
        queue_of(np.zeros(1, dtype=JOB), bucket, np.zeros(1, dtype=np.int64), np.array([[count, WHOLE]]))
    )
    goal = goal_of(target, (None,))
    for row in range(len(rows)):
        scores.refresh(cache, row, goal)
        scores.evaluate(scores.FGD, cache, row, queue, 0, 0, goal)
    keys = np.stack((cache.score[0, row_of.reshape(-1)], -left_over.round(6)), axis=1)
    _, ranks = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(ranks.reshape(-1) / max(int(ranks.max(initial=0)), 1), dtype=np.float64)

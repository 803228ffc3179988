"""Fragmentation: the free GPU capacity of a machine that a target workload could not use.

`kernels.scores` computes the same for placements, machine by machine. `node_ranks` ranks all machines by it, for
schedulers that need a score of every machine and do not distinguish devices.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.gangs import ANY_GPU_TYPE, WHOLE, Demand, allows, shape, whole_devices
from scheduler_core.kernels import scores
from scheduler_core.kernels.records import JOB
from scheduler_core.kernels.state import Room, cache_of, queue_of, uncompiled
from scheduler_core.target import TargetWorkload, goal_of
from scheduler_core.types import FloatArray, IntArray

__all__ = ["FreeNodes", "fragmented", "node_ranks"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreeNodes:
    """Free capacity of n machines: milli-cores (n,), milli-GPUs of every device (n, most GPUs), and GPU types."""

    cpu_milli: IntArray
    devices: IntArray
    gpu_type: tuple[str | None, ...]


def fragmented(nodes: FreeNodes, target: TargetWorkload) -> IntArray:
    """Return the free milli-GPUs of each machine that pods of the target could not use (n,), summed over the pods.

    If a machine can host a shape, the shape cannot use the devices with too little free GPU. If the machine cannot host
    it, the shape can use none of the machine's free GPU; this also counts for shapes without GPUs.
    """
    free, devices = nodes.devices.sum(axis=1), nodes.devices[:, None, :]
    large = devices >= target.milli[None, :, None]
    small = np.where(large, 0, devices).sum(axis=2)
    kinds = {kind: [allows(requested, kind) for requested in target.gpu_type] for kind in set(nodes.gpu_type)}
    hosts = np.array([kinds[kind] for kind in nodes.gpu_type], dtype=np.bool_).reshape(small.shape)
    hosts &= (target.count > 0) & (large.sum(axis=2) >= target.count) & (nodes.cpu_milli[:, None] >= target.cpu_milli)
    return np.asarray(np.where(hosts, small, free[:, None]) @ target.pods, dtype=np.int64)


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

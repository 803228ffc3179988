"""Target workloads of placements by device, as arrays."""

import numpy as np

from scheduler_core.fragmentation import allows
from scheduler_core.kernels.state import Goal
from scheduler_core.target import TargetWorkload
from scheduler_core.types import IntArray

__all__ = ["goal_of", "kinds_of"]


def kinds_of(gpu_types: tuple[str | None, ...]) -> tuple[tuple[str | None, ...], IntArray]:
    """Return the distinct GPU types of machines, None first, and the number of each machine's type."""
    kinds = tuple(dict.fromkeys([None, *gpu_types]))
    return kinds, np.array([kinds.index(name) for name in gpu_types], dtype=np.int64)


def goal_of(target: TargetWorkload, kinds: tuple[str | None, ...]) -> Goal:
    """Create a `Goal`: group a target's GPU shapes by allowed machine kind and by milli-GPUs per device."""
    gpu = np.flatnonzero(target.count > 0)
    gpu = gpu[np.lexsort((target.cpu_milli[gpu], target.milli[gpu]))]
    levels, level = np.unique(target.milli[gpu], return_inverse=True)
    number = {name: at for at, name in enumerate(dict.fromkeys(target.gpu_type))}
    allowed = np.array([[allows(name, kind) for kind in kinds] for name in number], dtype=np.bool_)
    named = np.array([number[target.gpu_type[shape]] for shape in gpu.tolist()], dtype=np.int64)
    kind, at = np.nonzero(allowed.reshape(-1, len(kinds))[named].T)
    ends = np.cumsum(np.bincount(kind * len(levels) + level[at], minlength=len(kinds) * len(levels)))
    begins = np.arange(len(kinds))[:, None] * len(levels) + np.arange(len(levels) + 1)
    first = np.concatenate([np.zeros(1, dtype=np.int64), ends])[begins]
    entries = gpu[at]
    return Goal(
        levels=levels,
        first=first,
        cpu=target.cpu_milli[entries],
        pods=_summed(target.pods[entries], target.count[entries], first),
        total=target.total,
        survey=np.zeros((len(levels), 3), dtype=np.int64),
    )


def _summed(pods: IntArray, gpus: IntArray, first: IntArray) -> IntArray:
    """Return `Goal.pods` from the pods and devices of each entry."""
    small = gpus[:, None] <= np.arange(gpus.max(initial=0) + 1)
    sums = np.cumsum(np.where(small, pods[:, None], 0), axis=0)
    before = np.concatenate([np.zeros((1, sums.shape[1]), dtype=np.int64), sums])[first[:, :-1].ravel()]
    return np.ascontiguousarray(sums - np.repeat(before, np.diff(first, axis=1).ravel(), axis=0), dtype=np.int64)

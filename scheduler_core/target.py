"""Target workloads: the distinct shapes of requested instances, and how many pods (instances) have each shape.

`fragmentation` measures how much free GPU a target could not use. Also used by the placements by device, and by
studies, which create targets from a data lake or a list of pods.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import Demand, allows, shape
from scheduler_core.kernels.state import Goal
from scheduler_core.types import IntArray

__all__ = ["WINDOW", "TargetWorkload", "goal_of", "kinds_of", "sliding_targets", "target_of"]

ROUNDING: Final = 1e-9
"""Relative tolerance for rounding when pod counts are compared with the share `popularity` of all pods."""

Shape = tuple[int, int, int, str | None]
"""Demand of one instance: milli-cores, number of GPU devices, milli-GPUs of each device, and GPU type.

The GPU type may list alternatives separated by "|"; None is any type."""

WINDOW: Final = 10_000
"""Number of most recent arrivals that a sliding target counts."""

RENEWALS: Final = 10
"""Number of times that a sliding target is rebuilt while `WINDOW` jobs arrive."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetWorkload:
    """The k distinct shapes of requested instances, most frequent first; k may be 0, and memory is ignored.

    `cpu_milli`, `count` and `milli` (k,) are milli-cores, number of GPU devices (may be 0), and milli-GPUs of each
    device. `gpu_type` has k GPU types, alternatives separated by "|"; None for any type. `pods` (k,) is the number of
    pods (instances) with each shape; counts instead of shares, so that sums are exact.
    """

    cpu_milli: IntArray
    count: IntArray
    milli: IntArray
    gpu_type: tuple[str | None, ...]
    pods: IntArray

    @property
    def total(self) -> int:
        """Return the number of pods."""
        return int(self.pods.sum())

    def __len__(self) -> int:
        return len(self.pods)


def target_of(demands: Iterable[Demand], popularity: float = 1.0) -> TargetWorkload:
    """Return the target workload of demands, in which each instance is a pod.

    Only the most frequent shapes are kept, until they cover at least the share `popularity` of all pods. Among equally
    frequent shapes the larger comes first, so the order of the demands does not matter.

    References
    ----------
    Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX
    ATC 2023, section 3.2 (target workload). The published code keeps 95 % of the pods.

    Examples
    --------
    >>> demands = [Demand(units=(4000, 0, 500), instances=3), Demand(units=(8000, 0, 8000), instances=1)]
    >>> target_of(demands).pods.tolist(), target_of(demands, popularity=0.75).count.tolist()
    ([3, 1], [1])
    """
    if not 0.0 < popularity <= 1.0:
        raise BadInput(f"target: found the popularity {popularity:g}, expected a share of pods above 0 and at most 1")
    counts: Counter[Shape] = Counter()
    for demand in demands:
        count, milli = shape(demand.units[2])
        counts[demand.units[0], count, milli, demand.gpu_type] += demand.instances
    ranked = sorted(counts.items(), key=_rank, reverse=True)
    pods = np.array([number for _, number in ranked], dtype=np.int64)
    # As floats 0.55 * 100 is more than 55, so a share that falls short only by rounding counts as reached.
    kept = int(np.searchsorted(np.cumsum(pods), popularity * pods.sum() * (1.0 - ROUNDING))) + 1
    shapes = [each for each, _ in ranked[:kept]]
    return TargetWorkload(
        cpu_milli=np.array([cpu for cpu, _, _, _ in shapes], dtype=np.int64),
        count=np.array([count for _, count, _, _ in shapes], dtype=np.int64),
        milli=np.array([milli for _, _, milli, _ in shapes], dtype=np.int64),
        gpu_type=tuple(gpu_type for _, _, _, gpu_type in shapes),
        pods=pods[:kept],
    )


def _rank(entry: tuple[Shape, int]) -> tuple[int, int, int, int, str]:
    (cpu, count, milli, gpu_type), pods = entry
    return pods, cpu, milli, count, gpu_type or ""


def sliding_targets(demands: Iterable[Demand], window: int = WINDOW) -> Iterator[TargetWorkload | None]:
    """Yield for each arrival the target workload of the last `window` arrivals if it is rebuilt then, else None.

    It is rebuilt at the 1st, 2nd, 4th, 8th ... arrival, and later after every tenth of a window.

    Examples
    --------
    >>> learnt = sliding_targets((Demand(units=(1000, 0, gpu), instances=1) for gpu in (500, 1000, 1000)), window=2)
    >>> [target.milli.tolist() for target in learnt]
    [[500], [1000, 500], [1000]]
    """
    recent, since, known = deque[Demand](maxlen=window), 0, 0
    for demand in demands:
        recent.append(demand)
        since += 1
        if since < max(min(known, window // RENEWALS), 1):
            yield None
        else:
            known, since = known + since, 0
            yield target_of(recent)


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

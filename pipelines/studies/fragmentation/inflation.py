"""The inflation protocol of FGD: pods are submitted one by one until they request 130 % of the cluster's GPUs.

No pod ever ends, and pods that do not fit are dropped; there is no time and no queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.devices import rounded
from scheduler_core.engine import Ties, fill
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.jobs import Jobs
from scheduler_core.target import TargetWorkload
from scheduler_core.types import BoolArray, FloatArray, IntArray

UNTIL: Final = 1.3
"""Maximum number of GPUs that all submitted pods request together, as a multiple of the cluster's GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pods:
    """Pods in the order of their submission (n).

    `units` are requested CPU, memory and GPUs in the integers of `cluster.UNITS` (n, 3); `gpu_type` are indices into
    `gpu_types`, or `ANY_GPU_TYPE` (n,). The name of a GPU type may list alternatives, separated by "|".
    """

    units: IntArray
    gpu_type: IntArray
    gpu_types: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.units)

    @property
    def milli_gpus(self) -> IntArray:
        """Return the milli-GPUs of each pod (n,); a pod that requests more than one GPU takes whole devices."""
        return rounded(self.units[:, 2])

    def name(self, row: int) -> str | None:
        """Return the GPU type that a pod requests, or None for any type."""
        return None if self.gpu_type[row] == ANY_GPU_TYPE else self.gpu_types[self.gpu_type[row]]

    def ordered(self, order: IntArray) -> "Pods":
        """Return the pods with these row numbers, in this order; numbers may repeat."""
        return Pods(units=self.units[order], gpu_type=self.gpu_type[order], gpu_types=self.gpu_types)

    def demands(self) -> list[Demand]:
        """Return each pod as a demand of one instance."""
        return [
            Demand(units=(cpu, mem, gpu), instances=1, gpu_type=self.name(row))
            for row, (cpu, mem, gpu) in enumerate(self.units.tolist())
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inflation:
    """The state of a cluster of `capacity_milli` milli-GPUs after each submitted pod (n).

    `arrived_milli` and `used_milli` are milli-GPUs requested and allocated so far (n,); `fragmentation` is the free
    milli-GPUs that a pod of the target workload could not use, averaged over these pods (n,). `node` is the machine of
    the pod, or -1 if it was dropped (n,); `taken` masks the devices that it uses (n, largest number of devices).
    """

    capacity_milli: int
    arrived_milli: IntArray
    used_milli: IntArray
    fragmentation: FloatArray
    node: IntArray
    taken: BoolArray


def inflate(milli_gpus: IntArray, capacity_milli: int, *, until: float = UNTIL, rng: np.random.Generator) -> IntArray:
    """Return row numbers of pods in the order of submission, which together request almost `until` times the capacity.

    All pods come first, shuffled. Then random pods are repeated until one more would exceed the limit. If all pods
    already exceed it, random pods are left out instead until the rest fits. Pass pods sorted by name, so that the
    result does not depend on their order in the file.


    References
    ----------
    Weng et al., USENIX ATC 2023, section 6.1 (Monte-Carlo workload inflation).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sorted(inflate(np.array([600, 600]), 1000, until=1.3, rng=rng).tolist())
    [0, 1]
    >>> len(inflate(np.array([600, 600]), 1000, until=0.7, rng=rng))
    1
    """
    if not (milli_gpus > 0).any():
        raise BadInput("inflation: found no pod that asks for a GPU, expected at least one")
    most = until * capacity_milli
    order = rng.permutation(len(milli_gpus))
    total = int(milli_gpus.sum())
    if total > most:
        leaving = rng.permutation(len(order))
        left = total - np.cumsum(milli_gpus[order[leaving]])
        out = leaving[: int(np.argmax(left <= most)) + 1]
        return np.delete(order, out)
    parts, mean = [order], max(float(milli_gpus.mean()), 1e-9)
    while True:
        more = rng.integers(0, len(milli_gpus), int((most - total) / mean) + 100)
        sums = total + np.cumsum(milli_gpus[more])
        passes = np.flatnonzero(sums > most)
        if len(passes):
            return np.concatenate([*parts, more[: passes[0]]])
        parts.append(more)
        total = int(sums[-1])


def run_inflation(
    machines: Sequence[Machine],
    pods: Pods,
    policy: str,
    target: TargetWorkload,
    *,
    ties: Ties = "first",
    rng: np.random.Generator,
) -> Inflation:
    """Submit pods in their order to empty machines under one of the device placements.

    Of machines with equal scores, the first listed is taken, or with `ties="random"` a random one. The fragmentation is
    measured against `target` under every placement, including those that ignore `target`.

    """
    cluster = Cluster(machines, sharing="devices")
    units = np.column_stack([pods.units[:, :2], pods.milli_gpus])
    jobs = Jobs.of(units, pods.gpu_type, pods.gpu_types)
    node, taken, fragmentation = fill(jobs, cluster, policy, target, ties=ties, rng=rng)
    return Inflation(
        capacity_milli=int(cluster.capacity[:, 2].sum()),
        arrived_milli=np.cumsum(pods.milli_gpus),
        used_milli=np.cumsum(np.where(node >= 0, pods.milli_gpus, 0)),
        fragmentation=fragmentation,
        node=node,
        taken=taken,
    )


def curve(inflation: Inflation) -> pl.DataFrame:
    """Return, by whole percent of GPUs requested so far, `unallocated_pct` and `fragmented_pct` of all GPUs.

    Both are means over the pods submitted within that percent (`arrived_pct`).
    """
    to_pct = 100.0 / inflation.capacity_milli
    pods = pl.DataFrame(
        {
            "arrived_pct": np.round(to_pct * inflation.arrived_milli).astype(np.int64),
            "unallocated_pct": 100.0 - to_pct * inflation.used_milli,
            "fragmented_pct": to_pct * inflation.fragmentation,
        }
    )
    return pods.group_by("arrived_pct").mean().sort("arrived_pct")

"""The published inflation protocol: pods are drawn one by one until they request more GPUs than exist.

Nothing departs, and what does not fit is dropped; time and queues are in `simulator`. Called by `runs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.devices import rounded
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.kernels.ordered import distinct
from scheduler_core.kernels.sharing.placing import filled
from scheduler_core.kernels.sharing.state import (
    draws_of,
    goal_of,
    kept_of,
    kinds_of,
    nodes_of,
    policy_code,
    shapes_of,
)
from scheduler_core.sharing_placements import Ties
from scheduler_core.target import TargetWorkload
from scheduler_core.types import BoolArray, FloatArray, IntArray

UNTIL: Final = 1.3
"""Maximum GPUs requested by the inflated pods, as a share of the cluster's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pods:
    """Pods in the order of their submission (n).

    Attributes
    ----------
    units
        (n, 3) int64 in the units of `cluster.UNITS`.
    gpu_type
        Code into `gpu_types` (whose names may be alternatives by "|"), or `ANY_GPU_TYPE`.
    """

    units: IntArray
    gpu_type: IntArray
    gpu_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.units.shape != (len(self.gpu_type), 3):
            raise BadInput(f"pods: found units of shape {self.units.shape}, expected ({len(self.gpu_type)}, 3)")
        if not ((self.gpu_type >= ANY_GPU_TYPE) & (self.gpu_type < len(self.gpu_types))).all():
            raise BadInput(f"pods: found a GPU type beyond the {len(self.gpu_types)} names")

    def __len__(self) -> int:
        return len(self.units)

    @property
    def milli_gpus(self) -> IntArray:
        """Return the GPUs each pod takes in total; above one GPU, whole devices (n,)."""
        return rounded(self.units[:, 2])

    def name(self, row: int) -> str | None:
        """Return a pod's GPU type."""
        return None if self.gpu_type[row] == ANY_GPU_TYPE else self.gpu_types[self.gpu_type[row]]

    def ordered(self, order: IntArray) -> "Pods":
        """Return these pods in an order, which may repeat or leave out some."""
        return Pods(units=self.units[order], gpu_type=self.gpu_type[order], gpu_types=self.gpu_types)

    def demands(self) -> list[Demand]:
        """Return each as a gang of one."""
        return [
            Demand(units=(cpu, mem, gpu), instances=1, gpu_type=self.name(row))
            for row, (cpu, mem, gpu) in enumerate(self.units.tolist())
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inflation:
    """The state of a cluster after each pod (n) while it is filled up.

    Attributes
    ----------
    capacity_milli
        Milli-GPUs of all machines.
    arrived_milli, used_milli
        Milli-GPUs asked for so far, and given so far.
    fragmentation
        Milli-GPUs free that a pod of the target could not use, on average.
    node
        The machine it went to, or -1 where it was dropped.
    taken
        (n, most GPUs) which of its devices it took milli-GPUs of.
    """

    capacity_milli: int
    arrived_milli: IntArray
    used_milli: IntArray
    fragmentation: FloatArray
    node: IntArray
    taken: BoolArray


def inflate(milli_gpus: IntArray, capacity_milli: int, *, until: float = UNTIL, rng: np.random.Generator) -> IntArray:
    """Return an order of pods (by row, some repeated or left out) that requests almost `until` of the capacity.

    All pods shuffled; then pods drawn anew, until the next would pass. If all of them request more than that, pods
    drawn one by one are left out until the rest does not. Pods go in sorted by name, so that their file's order is of
    no account.

    Raises
    ------
    BadInput
        If no pod asks for a GPU: no number of them would ask for so much.

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

    Ties go to the machine listed first, or are drawn. The published rule is the smallest name, after every name was
    given a number before it from a permutation drawn by the run's seed: machines in an order drawn once per run. Under
    placements of coarse scores the order matters (up to a point of allocation), so a fixed one is another experiment.
    `random` measures against `target` as well, without looking at it.

    Raises
    ------
    BadInput
        If no device placement has that name, or no machine has a GPU.
    """
    code, drawing = policy_code(policy), ties == "random" or policy == "random"
    room = Cluster(machines, sharing="devices").room()
    if room.devices is None or not room.devices.any():
        raise BadInput(f"inflation: found {len(machines)} machines without a GPU, expected at least one with")
    kinds, kind = kinds_of([machine.gpu_type for machine in machines])
    nodes = nodes_of(room.free, room.devices, kind, room.up, room.largest)
    codes, first = distinct(np.column_stack([pods.units, pods.gpu_type]))
    shapes = shapes_of(pods.units[first], [pods.name(row) for row in first.tolist()], kinds)
    draws = draws_of(rng, len(pods), drawing)
    found, taken, weighed = (np.empty(len(pods), dtype=np.int64) for _ in range(3))
    kept = kept_of(len(first), len(machines))
    filled(code, nodes, shapes, goal_of(target, kinds), kept, codes, draws, drawing, found, taken, weighed)
    return Inflation(
        capacity_milli=int(room.devices.sum()),
        arrived_milli=np.cumsum(pods.milli_gpus),
        used_milli=np.cumsum(np.where(found >= 0, pods.milli_gpus, 0)),
        fragmentation=weighed / max(target.total, 1),
        node=found,
        taken=(taken[:, None] >> np.arange(room.devices.shape[1]) & 1).astype(np.bool_),
    )


class Binned(NamedTuple):
    """A cluster that is filled up, by whole percent of its GPUs that had arrived, ascending: means within each."""

    percent: IntArray
    allocated_pct: FloatArray
    fragmented_pct: FloatArray


def binned(inflation: Inflation) -> Binned:
    """Return allocated GPUs and free but fragmented GPUs, in percent of all, by percent arrived."""
    to_pct = 100.0 / inflation.capacity_milli
    percent, at = np.unique(np.round(to_pct * inflation.arrived_milli).astype(np.int64), return_inverse=True)
    allocated, fragmented = (
        np.bincount(at, weights=to_pct * column) / np.bincount(at)
        for column in (inflation.used_milli, inflation.fragmentation)
    )
    return Binned(percent=percent, allocated_pct=allocated, fragmented_pct=fragmented)

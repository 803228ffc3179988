"""Placements with GPUs shared by device: fragmentation gradient descent (FGD) and the baselines it is compared with.

`kernels.sharing` computes the scores, which are cached until a machine changes. Created by the registry in `placement`,
and by studies that pass their own target workload.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.devices import Sharing, shape
from scheduler_core.errors import BadInput
from scheduler_core.kernels.ordered import distinct
from scheduler_core.kernels.sharing import placing
from scheduler_core.kernels.sharing.state import (
    draws_of,
    goal_of,
    kept_of,
    kinds_of,
    nodes_of,
    policy_code,
    shapes_of,
)
from scheduler_core.target import SlidingTarget, TargetWorkload
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["DevicePlacement", "Ties", "filled"]

Ties = Literal["first", "random"]
"""How to choose among machines with equal scores: the first, or a random one."""

MOST_SHAPES: Final = 1024
"""Maximum number of distinct demands with cached scores; one more empties the cache."""

FEWEST_SHAPES: Final = 16
"""Initial number of distinct demands that the cache can hold."""


class DevicePlacement:
    """A placement that puts each instance of a gang in turn on the machine with the best score; it places all or none.

    Machines without enough CPU, memory or devices, or of another GPU type, are excluded. Ties go to the machine listed
    first, or to a random one. On the machine, a part of a GPU takes the device with the least sufficient free GPU, and
    whole GPUs take the idle devices of lowest index; exceptions are in the list below. Scores are integers, mostly
    within 0..100.

    - ``fgd``: 100 times the sigmoid of the decrease in the machine's fragmented GPUs for the target workload (see the
      module `fragmentation`); a part of a GPU takes the device with the largest decrease.
    - ``fgd_used_first``: the score of `fgd`, but among equal scores machines with a GPU in use come before machines
      whose GPUs are all idle. That keeps idle machines for jobs that need whole machines. Under plain `fgd` equal
      scores are common, since scores are coarse, and only the order of machines then keeps some machines idle.
    - ``dot_product``: the smallest dot product of free and requested CPU and GPU, as shares of the largest machine.
    - ``best_fit_gpu``: the least CPU and GPU left over, as shares of the largest machine.
    - ``gpu_packing``: first GPUs in use, then idle GPUs of machines in use, then machines whose GPUs are all idle.
    - ``gpu_clustering``: first machines where all instances have the same GPU size as the new one (a part of a GPU, or
      k whole GPUs), then those where some have it, then empty machines, then all others; among equals the fullest.
    - ``random``: a random machine that fits, and a random device that fits.

    Random choices depend only on the seed, the demand and the free capacity. The cache does not change any result. If
    no target is given, `fgd` learns one from the jobs reported by `arrived`.

    References
    ----------
    Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX
    ATC 2023 (fgd, and the baselines as measured there). Grandl et al.: Multi-resource packing for cluster schedulers,
    SIGCOMM 2014 (dot product). Weng et al.: MLaaS in the Wild, NSDI 2022 (packing). Xiao et al.: Gandiva, OSDI 2018
    (clustering).

    Examples
    --------
    >>> from scheduler_core.cluster import Cluster, paper_machines
    >>> cluster = Cluster(paper_machines(), sharing="devices")
    >>> place = DevicePlacement("gpu_packing")
    >>> for _ in range(3):
    ...     cluster.allocate(place(Demand(units=(1000, 1024, 400), instances=1), cluster.room()))
    >>> cluster.devices[0].tolist()
    [200, 600, 1000, 1000, 1000, 1000, 1000, 1000]
    """

    sharing: Sharing = "devices"

    def __init__(
        self,
        policy: str,
        target: TargetWorkload | SlidingTarget | None = None,
        ties: Ties = "first",
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.ties = ties
        self.seed = seed
        self._code = policy_code(policy)
        self._target = SlidingTarget() if target is None else target
        self._drawing = ties == "random" or policy == "random"
        self._undrawn = np.random.default_rng(seed)
        self._mirror: _Mirror | None = None

    def arrived(self, demand: Demand) -> None:
        """Count a new job in the target workload, if the target is learnt."""
        if isinstance(self._target, SlidingTarget):
            self._target.arrived(demand)

    def __call__(self, demand: Demand, room: Room) -> Allocation | None:
        """Return the allocation of a gang in the given free capacity, None if it does not fit.

        Raises
        ------
        BadInput
            If the GPUs of `room` are pooled.
        """
        mirror = self._following(room)
        draws = draws_of(self._rng(demand, room), demand.instances, self._drawing)
        placed = mirror.place(self._code, demand, draws, self._drawing)
        return None if placed is None else _allocation(demand, *placed)

    def fragmentation(self, room: Room) -> float:
        """Return the fragmentation of the given free capacity for the target, in milli-GPUs.

        It equals `fragmentation.cluster_fragmentation`, but only changed machines are computed again.

        Raises
        ------
        BadInput
            If the GPUs of `room` are pooled.
        """
        return self._following(room).fragmentation()

    def _following(self, room: Room) -> "_Mirror":
        if room.devices is None or room.tenants is None:
            raise BadInput(f"placement {self.policy}: found a room with pooled GPUs, expected sharing by devices")
        if self._mirror is None or not self._mirror.reflects(room):
            self._mirror = _Mirror(room, room.devices)
        self._mirror.aim(self._target.target if isinstance(self._target, SlidingTarget) else self._target)
        self._mirror.follow(room, room.devices, room.tenants)
        return self._mirror

    def _rng(self, demand: Demand, room: Room) -> np.random.Generator:
        """Return a random generator seeded by the demand and the free capacity, independent of earlier calls."""
        if not self._drawing:
            return self._undrawn
        digest = hashlib.blake2b(repr((self.seed, demand)).encode(), digest_size=16)
        digest.update(room.free.tobytes())
        digest.update(b"" if room.devices is None else room.devices.tobytes())
        return np.random.default_rng(int.from_bytes(digest.digest(), "little"))


def filled(
    policy: str,
    room: Room,
    units: IntArray,
    gpu_types: Sequence[str | None],
    target: TargetWorkload,
    *,
    ties: Ties = "first",
    rng: np.random.Generator,
) -> tuple[IntArray, BoolArray, FloatArray]:
    """Place n pods in turn in the free capacity `room`; none ends, and pods that do not fit are dropped.

    `units` (n, 3) are requests in the units of `cluster.UNITS`, `gpu_types` the n requested types. Returns the machine
    of each pod, -1 if it was dropped (n,), the devices it takes there (n, devices), and the mean free milli-GPUs that
    a pod of the target could not use thereafter (n,).

    Raises
    ------
    BadInput
        If no device placement has that name, or no machine has a GPU.
    """
    code, drawing = policy_code(policy), ties == "random" or policy == "random"
    if room.devices is None or not room.devices.any():
        raise BadInput(f"placement {policy}: found {len(room.up)} machines without a GPU, expected at least one with")
    kinds, kind = kinds_of(room.of_type, len(room.up))
    nodes = nodes_of(room.free, room.devices, kind, room.up, room.largest)
    named = {name: at for at, name in enumerate(dict.fromkeys(gpu_types))}
    codes, first = distinct(np.column_stack([units, [named[name] for name in gpu_types]]))
    shapes = shapes_of(units[first], [gpu_types[row] for row in first.tolist()], kinds)
    kept, draws = kept_of(len(first), len(room.up)), draws_of(rng, len(units), drawing)
    found, taken, weighed = (np.empty(len(units), dtype=np.int64) for _ in range(3))
    placing.filled(code, nodes, shapes, goal_of(target, kinds), kept, codes, draws, drawing, found, taken, weighed)
    devices = (taken[:, None] >> np.arange(room.devices.shape[1]) & 1).astype(np.bool_)
    return found, devices, weighed / max(target.total, 1)


class _Mirror:
    """A copy of a cluster's free capacity in the arrays of the kernels, with cached scores."""

    def __init__(self, room: Room, devices: IntArray) -> None:
        self._of_type, self._largest = room.of_type, room.largest
        self._kinds, kind = kinds_of(room.of_type, len(room.up))
        # Nothing is free until `follow` copies the free capacity.
        self._nodes = nodes_of(
            np.zeros_like(room.free), np.zeros_like(devices), kind, np.zeros_like(room.up), room.largest
        )
        self._target: TargetWorkload | None = None
        self._numbers: dict[tuple[tuple[int, int, int], str | None], int] = {}
        self._kept = kept_of(FEWEST_SHAPES, len(room.up))

    def reflects(self, room: Room) -> bool:
        """Return whether `room` is the free capacity of the cluster that this object copies."""
        same = room.of_type is self._of_type and room.largest is self._largest
        return same and room.devices is not None and room.devices.shape == self._nodes.devices.shape

    def aim(self, target: TargetWorkload) -> None:
        """Set the target workload for later scores."""
        if target is not self._target:
            self._target = target
            self._goal = goal_of(target, self._kinds)
            placing.aim(self._nodes, self._goal, self._kept)

    def follow(self, room: Room, devices: IntArray, tenants: IntArray) -> None:
        """Copy the current free capacity of the cluster, and mark the cached scores of changed machines as stale."""
        placing.mirror(self._nodes, room.free, devices, tenants, room.up, self._goal, self._kept)

    def fragmentation(self) -> float:
        """Return the mean milli-GPUs that a pod of the target could not use."""
        return int(self._kept.fragmented.sum()) / max(self._goal.total, 1)

    def place(
        self, policy: int, demand: Demand, draws: FloatArray, drawn_ties: bool
    ) -> tuple[IntArray, IntArray] | None:
        """Place a gang in the copy; return each instance's machine and devices (as bits), None if it does not fit."""
        at = self._number(demand)
        found, taken = np.empty(demand.instances, dtype=np.int64), np.empty(demand.instances, dtype=np.int64)
        fits = placing.place(
            policy, self._nodes, self._shapes, at, self._goal, self._kept, draws, drawn_ties, found, taken
        )
        return (found, taken) if fits else None

    def _number(self, demand: Demand) -> int:
        """Return the row of the cache for a demand; the number of instances does not matter."""
        key = demand.units, demand.gpu_type
        if key not in self._numbers:
            if len(self._numbers) == MOST_SHAPES:
                self._numbers.clear()
                self._keep(FEWEST_SHAPES)
            self._numbers[key] = len(self._numbers)
            known = list(self._numbers)
            units = np.array([units for units, _ in known], dtype=np.int64)
            self._shapes = shapes_of(units, [gpu_type for _, gpu_type in known], self._kinds)
            if len(known) > len(self._kept.score):
                self._keep(2 * len(self._kept.score))
        return self._numbers[key]

    def _keep(self, shapes: int) -> None:
        """Replace the cache by an empty one for a given number of shapes."""
        self._kept = kept_of(shapes, len(self._nodes.up))._replace(fragmented=self._kept.fragmented)


def _allocation(demand: Demand, found: IntArray, taken: IntArray) -> Allocation:
    milli = shape(demand.units[2])[1]
    hosts = found.tolist()
    devices = tuple(
        (machine, device, milli)
        for machine, bits in zip(hosts, taken.tolist(), strict=True)
        for device in range(bits.bit_length())
        if bits >> device & 1
    )
    return Allocation(demand=demand, counts=tuple(Counter(hosts).items()), devices=devices)

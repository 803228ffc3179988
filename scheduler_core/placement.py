"""Placements: functions `(demand, room) -> allocation or None` that choose the machines for a gang.

A room is the free capacity of a cluster, which a placement does not change. A gang may be split over machines, an
instance may not. Among equal machines the first one is chosen. `Room.allocation` chooses the GPUs on a machine. Called
by `rounds` and `occupancy`; `PLACEMENTS` at the end lists all by name.

To add a placement, write its function and name it in `PLACEMENTS`; repeat the name in
`pipelines.cli.simulation_options` and `modelserve.contract.placements`, with its reason in `decisions`. The compiled
engine needs an equivalent in `scheduler_core.kernels.placing`.
Placements by device are in `sharing_placements`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.devices import SHARINGS, Sharing
from scheduler_core.errors import BadInput
from scheduler_core.types import IntArray

__all__ = ["Placement", "sharing_of"]

Placement = Callable[[Demand, Room], Allocation | None]
"""A function that chooses machines for a gang in a given free capacity; None if the gang does not fit.

It returns `Room.allocation(...)`, or an allocation with devices of its own choice. It may have two attributes:
`sharing` names how GPUs must be shared, and the method `arrived(demand)` is called for every new job in the queue.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementKind:
    """A registered placement: how to create it from `Discipline.seed` (`make`), and how it shares GPUs (`sharing`).

    If the placement has state, `make` returns a new object each time, else always the same function.
    """

    make: Callable[[int], Placement]
    sharing: Sharing = "pooled"


def first_fit(demand: Demand, room: Room) -> Allocation | None:
    """Fill machines in the order in which the cluster lists them."""
    return _filled(demand, room, room.hosts(demand), np.arange(len(room.free)))


def best_fit(demand: Demand, room: Room) -> Allocation | None:
    """Fill the machines with the least free capacity (`Room.freeness`) first, to keep large blocks for large jobs.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 ("sort servers by free resources ascending").

    Examples
    --------
    >>> from scheduler_core.cluster import Cluster, paper_machines
    >>> best_fit(Demand(units=(6000, 4096, 500), instances=20), Cluster(paper_machines()).room()).counts
    ((0, 16), (1, 4))
    """
    hosts, freeness = room.hosts(demand), room.freeness()
    least = int(np.where(hosts > 0, freeness, np.inf).argmin())
    if hosts[least] >= demand.instances:
        return room.allocation(demand, [(least, demand.instances)])
    return _filled(demand, room, hosts, np.argsort(freeness, kind="stable"))


def consolidate(demand: Demand, room: Room) -> Allocation | None:
    """Put the gang on the fullest machine that can host all of it, else on as few machines as possible.

    References
    ----------
    Jeon et al.: Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019
    (locality of gangs); Xiao et al.: Gandiva, OSDI 2018 (packing).

    Examples
    --------
    >>> from scheduler_core.cluster import Cluster, paper_machines
    >>> consolidate(Demand(units=(0, 0, 4000), instances=2), Cluster(paper_machines()).room()).counts
    ((0, 2),)
    """
    hosts = room.hosts(demand)
    whole = hosts >= demand.instances
    if whole.any():
        machine = int(np.where(whole, room.freeness(), np.inf).argmin())
        return room.allocation(demand, [(machine, demand.instances)])
    return _filled(demand, room, hosts, np.argsort(-hosts, kind="stable"))


def spread(demand: Demand, room: Room) -> Allocation | None:
    """Put each instance in turn on the freest machine that can host it, which balances the load of machines.

    References
    ----------
    `LeastAllocated` scoring in Kubernetes and `CR_LLN` (least loaded node) in Slurm place the same way.
    """
    hosts = room.hosts(demand)
    if hosts.sum() < demand.instances:
        return None
    free = room.free.copy()
    counts: Counter[int] = Counter()
    for _ in range(demand.instances):
        freeness = (free / room.largest).sum(axis=1)
        machine = int(np.where(hosts > 0, freeness, -np.inf).argmax())
        counts[machine] += 1
        hosts[machine] -= 1
        free[machine] -= np.array(demand.units)
    return room.allocation(demand, list(counts.items()))


def placement_of(placement: str | Placement, seed: int = 0) -> Placement:
    """Return the placement with a given name, a new object if it has state; return an object unchanged.

    Raises
    ------
    BadInput
        If no placement has the name.
    """
    return _kind(placement).make(seed) if isinstance(placement, str) else placement


def sharing_of(placement: str | Placement, asked: Sharing | None = None) -> Sharing:
    """Return how GPUs are shared: as `asked` says, or if it is None by the placement's default.

    Raises
    ------
    BadInput
        If the placement or the sharing is unknown, or if pooled GPUs are requested for a placement by device.

    Examples
    --------
    >>> sharing_of("best_fit"), sharing_of("best_fit", "devices")
    ('pooled', 'devices')
    """
    if asked is not None and asked not in SHARINGS:
        raise BadInput(f"sharing: found {asked!r}, expected one of {', '.join(SHARINGS)}")
    declared = _kind(placement).sharing if isinstance(placement, str) else getattr(placement, "sharing", "pooled")
    if declared == "devices" and asked == "pooled":
        raise BadInput(f"sharing: found pooled GPUs for the placement {placement}, expected devices, or no sharing")
    return asked or ("devices" if declared == "devices" else "pooled")


def _kind(name: str) -> PlacementKind:
    if name not in PLACEMENTS:
        raise BadInput(f"placement: found {name!r}, expected one of {', '.join(sorted(PLACEMENTS))}")
    return PLACEMENTS[name]


def _always(place: Placement) -> PlacementKind:
    return PlacementKind(make=lambda _: place)


def _on_devices(policy: str) -> PlacementKind:
    def make(seed: int) -> Placement:
        # Import numba and compile only for placements by device, since that takes seconds.
        from scheduler_core.sharing_placements import DevicePlacement

        return DevicePlacement(policy, seed=seed)

    return PlacementKind(make=make, sharing="devices")


def _filled(demand: Demand, room: Room, hosts: IntArray, order: IntArray) -> Allocation | None:
    if hosts.sum() < demand.instances:
        return None
    counts: list[tuple[int, int]] = []
    left = demand.instances
    # Each machine used takes at least one instance, so no more machines than instances are needed.
    for machine in order[hosts[order] > 0][: demand.instances].tolist():
        taken = min(left, int(hosts[machine]))
        counts.append((machine, taken))
        left -= taken
        if left == 0:
            break
    return room.allocation(demand, counts)


PLACEMENTS: Final[dict[str, PlacementKind]] = {
    "best_fit": _always(best_fit),
    "best_fit_gpu": _on_devices("best_fit_gpu"),
    "consolidate": _always(consolidate),
    "dot_product": _on_devices("dot_product"),
    "fgd": _on_devices("fgd"),
    "fgd_used_first": _on_devices("fgd_used_first"),
    "first_fit": _always(first_fit),
    "gpu_clustering": _on_devices("gpu_clustering"),
    "gpu_packing": _on_devices("gpu_packing"),
    "random": _on_devices("random"),
    "spread": _always(spread),
}

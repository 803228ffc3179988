"""Placements: which machines a gang goes to. `(demand, room) -> allocation or None`, changing nothing.

A gang may spread over machines, an instance may not. None means that the gang does not fit this room; ties go to the
machine listed first.
Called by `rounds`, `backfill` and `preemption`; the registry at the end is what names refer to.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.errors import BadInput
from scheduler_core.types import IntArray

Placement = Callable[[Demand, Room], Allocation | None]


def first_fit(demand: Demand, room: Room) -> Allocation | None:
    """Fill the machines in their given order."""
    return _filled(demand, room.hosts(demand), np.arange(len(room.free)))


def best_fit(demand: Demand, room: Room) -> Allocation | None:
    """Fill the machines with the least free capacity first, against fragmentation.

    Free capacity of a machine is the sum over resources of free over the largest machine's capacity.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 ("sort servers by free resources ascending").

    Examples
    --------
    >>> from scheduler_core.cluster import Cluster, paper_machines
    >>> best_fit(Demand(units=(6000, 4096, 500), instances=20), Cluster(paper_machines()).room()).counts
    ((0, 16), (1, 4))
    """
    return _filled(demand, room.hosts(demand), np.argsort(room.freeness(), kind="stable"))


def consolidate(demand: Demand, room: Room) -> Allocation | None:
    """Keep the gang together: on one machine if any hosts all of it (the fullest such), else on as few as possible.

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
        return Allocation(demand=demand, counts=((machine, demand.instances),))
    return _filled(demand, hosts, np.argsort(-hosts, kind="stable"))


def spread(demand: Demand, room: Room) -> Allocation | None:
    """Put one instance after the other on the freest machine that hosts it, for bandwidth and against hot spots.

    References
    ----------
    Kubernetes' `LeastAllocated` scoring and Slurm's `CR_LLN` (least loaded node) place the same way.
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
    return Allocation(demand=demand, counts=tuple(counts.items()))


def placement_of(placement: str | Placement) -> Placement:
    """Return a placement by its name; one given by value is itself.

    Raises
    ------
    BadInput
        If no placement has that name.
    """
    if not isinstance(placement, str):
        return placement
    if placement not in PLACEMENTS:
        raise BadInput(f"placement: found {placement!r}, expected one of {', '.join(sorted(PLACEMENTS))}")
    return PLACEMENTS[placement]


def _filled(demand: Demand, hosts: IntArray, order: IntArray) -> Allocation | None:
    if hosts.sum() < demand.instances:
        return None
    counts: list[tuple[int, int]] = []
    left = demand.instances
    for machine in order[hosts[order] > 0].tolist():
        taken = min(left, int(hosts[machine]))
        counts.append((machine, taken))
        left -= taken
        if left == 0:
            break
    return Allocation(demand=demand, counts=tuple(counts))


PLACEMENTS: Final[dict[str, Placement]] = {
    "best_fit": best_fit,
    "consolidate": consolidate,
    "first_fit": first_fit,
    "spread": spread,
}

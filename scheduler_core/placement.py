"""Placements: which machines a gang goes to. `(demand, cluster) -> allocation or None`, changing nothing.

A gang may spread over machines, an instance may not. None means that the gang does not fit now.
Called by `rounds`; the registry at the end is what names refer to.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from scheduler_core.cluster import Allocation, Cluster, Demand
from scheduler_core.types import IntArray

Placement = Callable[[Demand, Cluster], Allocation | None]


def best_fit(demand: Demand, cluster: Cluster) -> Allocation | None:
    """Fill the machines with the least free capacity first, against fragmentation.

    Free capacity of a machine is the sum over resources of free over the largest machine's capacity.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 ("sort servers by free resources ascending").

    Examples
    --------
    >>> from scheduler_core.cluster import paper_machines
    >>> best_fit(Demand(units=(6000, 4096, 500), instances=20), Cluster(paper_machines())).counts
    ((0, 16), (1, 4))
    """
    fullness = (cluster.free / cluster.largest).sum(axis=1)
    return _filled(demand, cluster.hosts(demand), np.argsort(fullness, kind="stable"))


def first_fit(demand: Demand, cluster: Cluster) -> Allocation | None:
    """Fill the machines in their given order."""
    return _filled(demand, cluster.hosts(demand), np.arange(len(cluster.machines)))


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


PLACEMENTS: Final[dict[str, Placement]] = {"best_fit": best_fit, "first_fit": first_fit}

"""Order machines for one instance with whole GPUs: first by fragmentation, then by what is left over (best fit).

For schedulers that ask for a score of every machine instead of one machine, and count GPUs without telling devices
apart.
"""

import numpy as np

from scheduler_core.cluster import Demand
from scheduler_core.devices import WHOLE, shape
from scheduler_core.target import TargetWorkload
from scheduler_core.types import FloatArray, IntArray

__all__ = ["node_ranks"]


def node_ranks(
    demand: Demand, cpu_milli: IntArray, gpus: IntArray, left_over: FloatArray, target: TargetWorkload
) -> FloatArray:
    """Return the rank of each machine that can host an instance of a demand (n,), from 0 (worst) to 1 (best).

    `cpu_milli` and `gpus` (n,) are free milli-cores and idle GPUs; all machines have room for the instance. The best
    machine's fragmentation for the target decreases most. Among equals it has the least `left_over` (n,), the
    machine's free resources after the instance. Equal machines have equal ranks. GPU types are ignored.

    References
    ----------
    Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX
    ATC 2023.

    Examples
    --------
    >>> from scheduler_core.target import target_of
    >>> four, one = (Demand(units=(1000, 0, milli), instances=1) for milli in (4000, 1000))
    >>> cores, gpus = np.array([64000, 64000]), np.array([4, 1])
    >>> node_ranks(one, cores, gpus, np.array([3.0, 0.0]), target_of([four])).tolist()  # keeps four GPUs together
    [0.0, 1.0]
    """
    count, _ = shape(demand.units[2])
    before = idle_fragmentation(cpu_milli, gpus, target)
    decrease = before - idle_fragmentation(cpu_milli - demand.units[0], gpus - count, target)
    return _dense_ranks(np.stack((decrease, -left_over), axis=1))


def idle_fragmentation(cpu_milli: IntArray, gpus: IntArray, target: TargetWorkload) -> FloatArray:
    """Return each machine's mean idle milli-GPUs that pods of the target could not use (n,).

    Equals `scheduler_core.fragmentation.fragmentation` for machines whose free GPUs are all idle, in less time.

    >>> from scheduler_core.target import target_of
    >>> target = target_of([Demand(units=(1000, 0, 4000), instances=1), Demand(units=(1000, 0, 1000), instances=3)])
    >>> idle_fragmentation(np.array([64000]), np.array([2]), target).tolist()
    [500.0]
    """
    fits = (cpu_milli[:, None] >= target.cpu_milli) & (gpus[:, None] >= target.count) & (target.count > 0)
    usable = fits.astype(np.float64) @ target.popularity
    return np.asarray(gpus * WHOLE * (1.0 - usable), dtype=np.float64)


def _dense_ranks(keys: FloatArray) -> FloatArray:
    """Return the rank of each row of keys (n, 2) in lexicographic order, from 0 to 1; equal rows rank equally.

    >>> _dense_ranks(np.array([[1.0, 2.0], [0.0, 9.0], [1.0, 2.0]])).tolist()
    [1.0, 0.0, 1.0]
    """
    _, ranks = np.unique(np.round(keys, 6), axis=0, return_inverse=True)
    return np.asarray(ranks.reshape(-1) / max(int(ranks.max(initial=0)), 1), dtype=np.float64)

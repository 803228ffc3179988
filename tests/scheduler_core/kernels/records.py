"""The compiled loop's records, filled by hand, for the tests of its parts.

Builders only; nothing is asserted here. Imported by the tests of this folder.
"""

from typing import Any

import numpy as np

from pipelines.simulation.engine.compiled.run import queue_of
from scheduler_core.cluster import Cluster, Machine
from scheduler_core.kernels import state
from scheduler_core.kernels.state import buckets_of, cluster_of, log_of, scratch_of
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import workload


def queue(ranks: list[float]) -> state.Queue:
    """Return jobs of one demand with these ranks; none waits yet."""
    made = queue_of(workload(*({"gpus": 1.0} for _ in ranks)), Discipline())
    made.jobs["rank"] = ranks
    return made


def log(made: state.Queue, ends_s: list[float]) -> state.Log:
    """Return a log in which job i is to end at `ends_s[i]`, as run i; no end is in the heap yet."""
    written = log_of(len(ends_s), len(ends_s), len(ends_s))
    written.runs["end_s"][:-1] = ends_s
    written.runs["job"][:-1] = np.arange(len(ends_s))
    return written


def demand(units: Any, instances: int, gpu_type: int = -1) -> state.Queue:
    """Return a queue whose bucket 0 is this demand."""
    row = np.array([[*units, instances, gpu_type, 0]], dtype=np.int64)
    empty = queue([0.0])
    return empty._replace(buckets=buckets_of(row, np.zeros(1, dtype=np.int64)), units=row[:, :3].copy())


def cluster(machines: list[Machine], free: Any) -> Cluster:
    """Return machines with these units free."""
    plain = Cluster(machines)
    plain.free[:] = free
    return plain


def laid_out(plain: Cluster) -> tuple[state.Cluster, state.Scratch]:
    """Return a cluster as the compiled engine holds it."""
    return cluster_of(plain, ("T4", "V100"), 1), scratch_of(1, 1, len(plain.machines))

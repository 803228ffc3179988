"""What may run beside running jobs: the room that their reservations leave on each node, and waiting jobs that fit in.

Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from modelserve.contract.reservations import Reserved
from pipelines.connect.slurm.queue import Node, QueuedJob
from scheduler_core.risk import admits, free_capacity
from scheduler_core.types import BoolArray, FloatArray

RESOURCES: Final = ("cpus", "memory", "gpus")
Row = dict[str, object]


@dataclass(slots=True, kw_only=True)
class Room:
    """Free resources of n nodes: CPU cores within the risk bound, the variance of their use, memory, whole GPUs.

    `capacity` and `asked` (n, 3) are CPU cores, GiB and GPUs: of the node, and allocated to its running jobs. Nodes
    that are not `open` take no new job.
    """

    nodes: Sequence[Node]
    capacity: FloatArray
    asked: FloatArray
    cpu_cores: FloatArray
    variance: FloatArray
    mem_gib: FloatArray
    gpus: FloatArray
    open: BoolArray
    z: float

    def rows(self) -> Iterator[Row]:
        """Yield a row for each node: capacity, what jobs were given, what they are to keep, and what is left."""
        for at, node in enumerate(self.nodes):
            yield {
                "kind": "node",
                "name": node.name,
                "open": bool(self.open[at]),
                "cpus": node.cpu_cores,
                "cpus_given": float(self.asked[at, 0]),
                "cpus_reserved": node.cpu_cores - float(self.cpu_cores[at]),
                "cpus_room": max(float(self.cpu_cores[at]), 0.0),
                "mem_gib": node.mem_gib,
                "mem_given_gib": float(self.asked[at, 1]),
                "mem_reserved_gib": node.mem_gib - float(self.mem_gib[at]),
                "mem_room_gib": max(float(self.mem_gib[at]), 0.0),
                "gpus_room": float(self.gpus[at]),
            }

    def admit(self, job: QueuedJob) -> Row | None:
        """Return a row for a waiting job that fits, and take its request from the fullest nodes; None if it does not.

        A newcomer reserves its request, as nothing is measured of it. `shares` names what it would share with others.
        """
        cpus, mem, gpus = _amounts(job)
        here = [
            bool(job.partitions & node.partitions) and (not job.wanted or node.name in job.wanted)
            for node in self.nodes
        ]
        fits = np.array(here, dtype=np.bool_) & self.open & admits(self.cpu_cores, self.variance, cpus, 0.0, 1, self.z)
        for free, amount in ((self.mem_gib, mem), (self.gpus, gpus)):
            fits &= admits(free, np.zeros(len(free)), amount, 0.0, 1, self.z)
        if job.exclusive:
            fits &= self.asked.sum(axis=1) == 0.0
        fullest = np.argsort(self.cpu_cores, kind="stable")
        places = fullest[fits[fullest]][: job.instances].tolist()
        if len(places) < job.instances:
            return None
        self.asked[places] += (cpus, mem, gpus)
        capacity = self.capacity[places]
        shared = (self.asked[places] > capacity).any(axis=0).tolist()
        for free, amount in ((self.cpu_cores, cpus), (self.mem_gib, mem), (self.gpus, gpus)):
            free[places] -= amount
        return {
            "kind": "waiting",
            "name": job.number,
            "cpus_given": cpus,
            "mem_given_gib": mem,
            "gpus_given": gpus,
            "fits_on": " ".join(self.nodes[at].name for at in places),
            "shares": " ".join(name for name, beyond in zip(RESOURCES, shared, strict=True) if beyond),
        }


def room_of(
    nodes: Sequence[Node],
    running: Mapping[str, QueuedJob],
    answers: Sequence[Reserved],
    full: Collection[str],
    z: float,
) -> Room:
    """Return the room that running jobs, by the id of their run, leave on the nodes; `full` nodes are closed."""
    places = {node.name: at for at, node in enumerate(nodes)}
    asked, memory = np.zeros((len(nodes), 3)), np.zeros(len(nodes))
    entries: list[tuple[int, float, float]] = []
    closed = set(full)
    for answer in answers:
        job = running[answer.job_id]
        closed |= set(job.hosts) if job.exclusive else set()
        for at in (places[host] for host in job.hosts if host in places):
            asked[at] += _amounts(job)
            memory[at] += answer.memory.mem_gib or 0.0
            entries.append((at, answer.mean.cpu_cores or 0.0, answer.spread.cpu_cores or 0.0))
    columns = np.array(entries, dtype=np.float64).reshape(-1, 3)
    on, mean, spread = columns[:, 0].astype(np.int64), columns[:, 1], columns[:, 2]
    variance = np.bincount(on, weights=spread * spread, minlength=len(nodes))
    capacity = np.array([(node.cpu_cores, node.mem_gib, node.gpus) for node in nodes]).reshape(-1, 3)
    return Room(
        nodes=nodes,
        capacity=capacity,
        asked=asked,
        cpu_cores=free_capacity(capacity[:, 0], on, np.ones(len(on)), mean, spread, z),
        variance=variance.astype(np.float64),
        mem_gib=capacity[:, 1] - memory,
        gpus=capacity[:, 2] - asked[:, 2],
        open=np.array([node.up and node.name not in closed for node in nodes], dtype=np.bool_),
        z=z,
    )


def _amounts(job: QueuedJob) -> tuple[float, float, float]:
    return job.asked.cpu_cores or 0.0, job.asked.mem_gib or 0.0, job.asked.gpus

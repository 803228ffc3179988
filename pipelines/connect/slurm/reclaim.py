"""Measure running jobs, and report what could run beside them: one round samples, asks the service, and adds up.

The room of a node is its capacity without the reservations of its running jobs. Nothing in Slurm is changed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from modelserve.client import Client
from modelserve.contract.reservations import Reserved, RunningJob
from pipelines.connect.ledger import Account, Ledger
from pipelines.connect.prometheus.dialects import DIALECTS, checked_matchers
from pipelines.connect.slurm.commands import fresh_separator, hosts_in, nodes_text, queue_text, steps_text
from pipelines.connect.slurm.queue import Node, QueuedJob, read_nodes, read_queue, read_steps
from pipelines.connect.slurm.steps import MIB_PER_GIB, Step
from scheduler_core.reserve import ReservePolicy, admits, free_capacity
from scheduler_core.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from pipelines.connect.prometheus.server import Server

__all__ = ["SlurmReclaimer", "exported_use"]

POLICY: Final = ReservePolicy()
FULL: Final = 0.95
"""Share of CPUs in use above which a node is saturated: measured use then no longer shows what jobs would take."""

Exported = Callable[[], Mapping[str, Mapping[str, float]]]
"""Returns use now by Slurm's raw job id and measure, summed over the job's machines."""

RESOURCES: Final = ("cpus", "memory", "gpus")
Row = dict[str, object]


@dataclass(slots=True, kw_only=True)
class SlurmReclaimer:
    """Reports in each round what running jobs leave idle; the `ledger` keeps the state between rounds.

    `exported` returns the exporters' measures, which replace Slurm's; None without exporters.
    """

    client: Client
    trace: str
    ledger: Ledger = field(default_factory=Ledger)
    exported: Exported | None = None

    def round(self, now: datetime) -> list[Row]:
        """Sample all running jobs once; return a row for each node, and one for each waiting job that would fit."""
        separator = fresh_separator()
        queue, nodes = read_queue(queue_text(separator), hosts_in, separator), read_nodes(nodes_text())
        running = {job.run_id: job for job in queue if job.start is not None}
        steps = read_steps(steps_text([job.job_id for job in running.values()]), hosts_in)
        exported = None if self.exported is None else self.exported()
        asked: list[RunningJob] = []
        counted: dict[str, Account] = {}
        used: dict[str, float] = {}
        for run_id, job in running.items():
            age_s = max((now - job.start).total_seconds(), 0.0) if job.start else 0.0
            before = self.ledger.known(run_id)
            sample, counted[run_id] = _sample(job, steps.get(job.job_id, {}), before, age_s)
            if exported is not None:
                sample = _merged(job, sample, exported.get(job.job_id, {}))
            asked.append(self._job(job, sample, before, age_s))
            for host in job.hosts:
                used[host] = used.get(host, 0.0) + (sample or {}).get("cpu_cores", 0.0)
        answers = self.ledger.reserved(self.client, asked, counted)
        at_s = now.timestamp()
        full = {node.name: at_s + POLICY.close_s for node in nodes if used.get(node.name, 0.0) > FULL * node.cpu_cores}
        self.ledger.closed_until = {
            name: until for name, until in (self.ledger.closed_until | full).items() if until > at_s
        }
        room = room_of(nodes, running, answers, self.ledger.closed_until, POLICY.z)
        waiting = (room.admit(job) for job in queue if job.ready)
        return [*room.rows(), *(row for row in waiting if row is not None)]

    def _job(self, job: QueuedJob, sample: Mapping[str, float] | None, before: Account, age_s: float) -> RunningJob:
        columns = None if sample is None else {"at_s": [age_s], **{name: [value] for name, value in sample.items()}}
        return RunningJob.model_validate(
            {
                "job_id": job.run_id,
                "trace": self.trace,
                "cluster": job.cluster,
                "user": job.user,
                "group": job.group,
                "vc": ",".join(sorted(job.partitions)),
                "gpu_type": job.gpu_type,
                "instances": job.instances,
                "request": {**job.asked.model_dump(), "gpus": job.asked.gpus or None},
                "age_s": age_s,
                "samples": columns,
                "statistics": before.statistics,
                "held": job.restarted,
                "opted_out": job.opted_out,
            }
        )


def _sample(
    job: QueuedJob, steps: Mapping[str, Step], before: Account, age_s: float
) -> tuple[dict[str, float] | None, Account]:
    """Return the use of one instance since the last round, and the new counters; None if some of it is unknown.

    Slurm forgets the use of an ended step. So use is known only if no step has ended since the last round.
    """
    counters = {name: step.cpu_s for name, step in steps.items()}
    fresh = before.model_copy(update={"counters": counters, "counted_at_s": age_s})
    seconds = age_s - (before.counted_at_s or 0.0)
    numbers, earlier = ({int(name) for name in each if name.isdecimal()} for each in (counters, before.counters))
    unseen = max(numbers, default=-1) - max(earlier, default=-1) - len(numbers - earlier)
    memory = [mib for step in steps.values() if (mib := step.most_mib()) is not None]
    if seconds <= 0.0 or unseen or not before.counters.keys() <= counters.keys() or not memory:
        return None, fresh
    spent = sum(max(value - before.counters.get(name, 0.0), 0.0) for name, value in counters.items())
    return {"cpu_cores": spent / seconds / job.instances, "mem_gib": sum(memory) / MIB_PER_GIB}, fresh


def _merged(job: QueuedJob, sample: dict[str, float] | None, exported: Mapping[str, float]) -> dict[str, float] | None:
    """Return a sample with the exporters' measures added; None if a job with GPUs has no measured use of GPUs."""
    found = {name: value / job.instances for name, value in exported.items()}
    merged = (sample or {}) | found
    measured = {"cpu_cores", "mem_gib"} | ({"gpus"} if job.asked.gpus else set())
    return merged if measured <= merged.keys() else None


def exported_use(server: "Server", dialect: str, match: str) -> dict[str, dict[str, float]]:
    """Return what exporters measure of jobs now, by Slurm's raw job id and measure."""
    from pipelines.connect.prometheus.readings import read_now  # with Polars, which Slurm's own measures do not need

    found: dict[str, dict[str, float]] = {}
    for job, measure, value in read_now(server, DIALECTS[dialect], checked_matchers(match)).iter_rows():
        found.setdefault(job, {})[measure] = value
    return found


@dataclass(slots=True, kw_only=True)
class Room:
    """Free resources of n nodes: CPU cores within the risk bound, the variance of CPU use, memory, and whole GPUs.

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
        """Yield a row for each node: capacity, what its jobs were given, what they would keep, and what is left."""
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

        A new job reserves its request, because it has no samples. `shares` names the resources that it would share.
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
    """Return the room that running jobs (by run id) leave on the nodes; `full` nodes are closed."""
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
    return job.asked.cpu_cores or 0.0, job.asked.mem_gib or 0.0, job.asked.gpus or 0.0

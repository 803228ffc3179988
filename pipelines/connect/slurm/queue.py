"""Read the text of `squeue`, `scontrol show nodes` and `sstat`: jobs that run or wait, nodes, and running steps.

Starts no process; `commands.py` does.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from modelserve.contract.jobs import Amounts
from pipelines.connect.slurm.accounting import amounts_in, gpu_type_in
from pipelines.connect.slurm.notation import counts_of, mib_of, seconds_of
from pipelines.connect.slurm.steps import Step
from pipelines.connect.slurm.submission import MIB_PER_GIB, OPT_OUT, group_of
from pipelines.errors import SourceError

JOB_FIELDS: Final = (
    "JobID", "JobArrayID", "Cluster", "State", "Reason", "Partition", "UserName", "NumNodes", "tres-alloc", "StartTime",
    "NodeList", "ReqNodes", "Feature", "OverSubscribe", "RestartCnt", "NumTasks", "Comment", "Name",
)  # fmt: skip
"""Fields requested from `squeue`; `tres-alloc` of a waiting job is its request."""
STEP_FIELDS: Final = ("JobID", "NTasks", "Nodelist", "MaxRSS", "TRESUsageInTot")
"""Fields requested from `sstat`."""

READY: Final = frozenset({"None", "Priority", "Resources"})
"""Slurm's reasons of waiting jobs that only lack room."""
UP: Final = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_NONE: Final = frozenset({"", "(null)", "N/A"})
_NODE: Final = re.compile(r"(?:^|\s)(NodeName|CPUTot|RealMemory|State|Partitions|CfgTRES)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that runs or waits; amounts are for one of its `instances`, which are its machines.

    A running job has `start` and `hosts`; a waiting job may request `wanted` hosts. `job_id` is Slurm's raw id,
    `number` the id as users write it; a waiting array is one job. `ready` is true if a waiting job only lacks room and
    has no constraints. An `exclusive` job shares its machines with no other.
    """

    cluster: str
    job_id: str
    number: str
    user: str | None
    name: str
    partitions: frozenset[str]
    instances: int
    tasks: int
    gpu_type: str | None
    asked: Amounts
    start: datetime | None
    hosts: tuple[str, ...]
    wanted: frozenset[str]
    ready: bool
    exclusive: bool
    restarted: bool
    opted_out: bool

    @property
    def run_id(self) -> str:
        """The id of this run; each run of a requeued job has its own."""
        return f"{self.job_id}@{self.start.timestamp():.0f}" if self.start else self.job_id

    @property
    def group(self) -> str | None:
        """The group of similar jobs, as at submission."""
        return group_of(self.user, self.name, math.ceil(self.tasks / self.instances))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: its partitions, whether it takes jobs, and its capacity."""

    name: str
    partitions: frozenset[str]
    up: bool
    cpu_cores: float
    mem_gib: float
    gpus: float


def read_queue(text: str, hosts_in: Callable[[str], tuple[str, ...]], separator: str) -> list[QueuedJob]:
    """Return the jobs in `squeue`'s text, in its order; `hosts_in` returns the nodes in one of Slurm's node lists.

    `separator` follows each field. A name may have line ends, so a row ends with `separator` and a line end.
    """
    jobs = []
    for number, line in enumerate(text.split(f"{separator}\n")[:-1], 1):
        values = line.split(separator)
        if len(values) != len(JOB_FIELDS):
            raise SourceError(
                f"job {number} of squeue's output has {len(values)} fields, expected {len(JOB_FIELDS)}: "
                "Slurm 20.11 or newer is needed"
            )
        row = {name: "" if value in _NONE else value for name, value in zip(JOB_FIELDS, values, strict=True)}
        requested, instances = counts_of(row["tres-alloc"]), max(int(row["NumNodes"] or 1), 1)
        running = row["State"] == "RUNNING"
        jobs.append(
            QueuedJob(
                cluster=row["Cluster"],
                job_id=row["JobID"],
                number=row["JobArrayID"],
                user=row["UserName"] or None,
                name=row["Name"],
                partitions=frozenset(row["Partition"].split(",")),
                instances=instances,
                tasks=int(row["NumTasks"] or 1),
                gpu_type=gpu_type_in(requested),
                asked=amounts_in(requested, instances),
                start=datetime.fromisoformat(row["StartTime"]).replace(tzinfo=UTC) if running else None,
                hosts=hosts_in(row["NodeList"]) if running else (),
                wanted=frozenset(hosts_in(row["ReqNodes"])),
                ready=row["State"] == "PENDING" and row["Reason"] in READY and not row["Feature"],
                exclusive=row["OverSubscribe"] in ("NO", "USER", "MCS"),
                restarted=row["RestartCnt"] not in ("", "0"),
                opted_out=any(OPT_OUT.search(row[name]) is not None for name in ("Comment", "Feature")),
            )
        )
    return jobs


def read_nodes(text: str) -> list[Node]:
    """Return the nodes in the text of `scontrol -o show nodes`."""
    nodes = []
    for line in text.splitlines():
        row = dict(_NODE.findall(line))
        if "NodeName" in row:
            base, *flags = row.get("State", "").split("+")
            capacity = amounts_in(counts_of(row.get("CfgTRES", "")), 1)
            nodes.append(
                Node(
                    name=row["NodeName"],
                    partitions=frozenset(row.get("Partitions", "").split(",")),
                    up=base in UP and not {"DRAIN", "MAINT", "NOT_RESPONDING", "RESERVED"} & set(flags),
                    cpu_cores=float(row.get("CPUTot") or 0),
                    mem_gib=float(row.get("RealMemory") or 0) / MIB_PER_GIB,
                    gpus=capacity.gpus or 0.0,
                )
            )
    return nodes


def read_steps(text: str, hosts_in: Callable[[str], tuple[str, ...]]) -> dict[str, dict[str, Step]]:
    """Return the steps in `sstat`'s text: by the job's raw id, then by the step's name."""
    steps: dict[str, dict[str, Step]] = {}
    for line in text.splitlines():
        values = line.split("|")
        job_id, _, name = values[0].partition(".")
        if len(values) != len(STEP_FIELDS) or not name:
            continue  # a message about a job that has just ended
        _, tasks, hosts, largest, total = values
        use = counts_of(total)
        steps.setdefault(job_id, {})[name] = Step(
            start=None,
            end=None,
            out_of_memory=False,
            tasks=int(tasks or 1),
            nodes=max(len(hosts_in(hosts)), 1),
            cpu_s=seconds_of(use.get("cpu", "")) or 0.0,
            max_rss_mib=mib_of(largest),
            total_mib=mib_of(use.get("mem", "")),
        )
    return steps

"""One submission to Slurm, as the job_submit plugin sends it, and which of its requests may change.

The plugin sends only the fields that the user set, under Slurm's names.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from pipelines.connect.names import normalised
from scheduler_core.types import Job, Request

MIB_PER_GIB: Final = 1024.0
OPT_OUT: Final = re.compile(r"(^|[\s,;&|])taut=off($|[\s,;&|])", re.IGNORECASE)
"""Text in a job's comment or constraint by which a user keeps the request."""

_GPU: Final = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][\w.-]*|\d+(?=:)))?(?::(?P<count>\d+))?")
_PLACED: Final = ("sockets_per_node", "cores_per_socket", "threads_per_core")
"""Fields that tie the number of CPUs to the shape of a machine."""


class BadRequestLine(ValueError):
    """A request from the plugin that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The request of a submission; a field that the user did not set is None or absent.

    `numbers` and `texts` hold Slurm's fields by name. Memory is in MiB, CPUs are totals of the job unless named
    otherwise.
    """

    numbers: Mapping[str, int]
    texts: Mapping[str, str]

    @property
    def nodes(self) -> int:
        """The lowest requested number of machines, which is the job's number of instances."""
        return max(self.numbers.get("min_nodes", 1), 1)

    @property
    def cpus(self) -> int | None:
        """The total number of requested CPUs; None if the submission names none."""
        return self.numbers.get("min_cpus")

    @property
    def tasks(self) -> int | None:
        """The requested CPUs divided by `cpus_per_task`; None if the division leaves a rest."""
        cpus, each = self.cpus, self.numbers.get("cpus_per_task")
        return cpus // each if cpus and each and cpus % each == 0 else None

    @property
    def mem_mib(self) -> float:
        """Requested memory on each machine in MiB; NaN if none is requested, or if it is requested per GPU."""
        if "min_mem_per_node" in self.numbers:
            return float(self.numbers["min_mem_per_node"])
        if "min_mem_per_cpu" in self.numbers and self.cpus:
            return self.numbers["min_mem_per_cpu"] * self.cpus / self.nodes
        return math.nan

    @property
    def opted_out(self) -> bool:
        """Whether the user asked to leave the job alone: `--comment=taut=off` or a constraint of that name."""
        return any(OPT_OUT.search(self.texts.get(name, "")) for name in ("comment", "features"))

    @property
    def tasks_per_node(self) -> int:
        """The requested number of tasks on each machine; 1 if the submission names none."""
        return math.ceil(self.numbers.get("num_tasks", 1) / self.nodes)

    def whole_kept_for(self) -> str:
        """Return why nothing of the job may change; "" if something may."""
        numbers = self.numbers
        if "batch" not in numbers:
            return "not a batch job: srun asks its step for as much as the job"
        if "steps_own" in numbers:
            return "srun in the script asks for CPUs, memory or tasks of its own"
        if "het_job_offset" in numbers:
            return "part of a heterogeneous job"
        if numbers.get("shared", 1) != 1:
            return "--exclusive"
        if numbers.get("min_mem_per_node") == 0 or numbers.get("min_mem_per_cpu") == 0:
            return "--mem=0"
        return ""

    def cpus_kept_for(self) -> str:
        """Return why the number of CPUs may not change; "" if it may."""
        if "steps_unseen" in self.numbers:
            return "a command of the script may start steps of its own"
        if self.tasks is None:
            return "no --cpus-per-task that makes up the job's CPUs"
        if "cpus_per_tres" in self.texts:
            return "--cpus-per-gpu"
        if self.numbers.get("pn_min_cpus", self.numbers["cpus_per_task"]) != self.numbers["cpus_per_task"]:
            return "--mincpus"
        if any(self.numbers.get(name, 0) > 0 for name in _PLACED):
            return "CPUs asked for by socket, core or thread"
        if math.isnan(self.mem_mib) and "mem_per_tres" not in self.texts:
            return "no memory asked for, so Slurm may derive it from the CPUs"
        return ""

    def job(self, *, cluster: str, trace: str, least_mem_mib: int) -> Job:
        """Return the job for a call of the service: amounts per machine, and the group from user and name."""
        gpus, kind = self._gpus()
        user, name = self.texts.get("user_name"), self.texts.get("name")
        asked = Request(
            cpu_cores=self.cpus / self.nodes if self.cpus else math.nan,
            mem_gib=math.nan if math.isnan(self.mem_mib) else self.mem_mib / MIB_PER_GIB,
            gpus=gpus,
        )
        return Job(
            job_id="submission",
            trace=trace,
            task_type="other",
            request=asked,
            instances=self.nodes,
            cluster=cluster,
            user=user,
            group=group_of(user, name, self.tasks_per_node),
            vc=self.texts.get("partition"),
            gpu_type=kind,
            minimum=Request(cpu_cores=1.0, mem_gib=least_mem_mib / MIB_PER_GIB, gpus=math.nan),
        )

    def _gpus(self) -> tuple[float, str | None]:
        """Return the GPUs per machine and their type; NaN if they are requested per socket."""
        by_socket, _ = gpus_of(self.texts.get("tres_per_socket", ""))
        if by_socket:
            return math.nan, None
        tasks = self.numbers.get("num_tasks", self.tasks or 1)
        per_machine = {"tres_per_node": 1.0, "tres_per_job": 1.0 / self.nodes, "tres_per_task": tasks / self.nodes}
        found = [(gpus_of(self.texts.get(name, "")), factor) for name, factor in per_machine.items()]
        kinds = [kind for (_, kind), _ in found if kind is not None]
        return max(count * factor for (count, _), factor in found), kinds[0] if kinds else None


def group_of(user: str | None, name: str | None, tasks: int = 1) -> str | None:
    """Return the group of similar jobs: one user, one normalised name, and the same number of tasks on a machine.

    The user counts because a name like `train` is not unique, the tasks because a machine holds the memory of all.

    >>> group_of("anna", "train"), group_of("anna", "etl-17", 8), group_of("anna", None)
    ('anna/train', 'anna/etl-# x8', None)
    """
    return f"{user}/{normalised(name)}"[:240] + (f" x{tasks}" if tasks > 1 else "") if user and name else None


def gpus_of(text: str) -> tuple[int, str | None]:
    """Return the number of GPUs in a list of generic resources of any Slurm release, and their type.

    >>> gpus_of("gres:gpu:t4:2"), gpus_of("gres/gpu:a100:1,gres/gpu:t4:2"), gpus_of("license:matlab:3"), gpus_of("gpu")
    ((2, 't4'), (3, 'a100'), (0, None), (1, None))
    """
    found = [match for part in re.sub(r"\([^)]*\)", "", text).split(",") if (match := _GPU.fullmatch(part.strip()))]
    count = sum(int(match["count"] or 1) for match in found)
    return count, next((match["type"] for match in found if match["type"]), None)


def read_submission(content: bytes) -> Submission:
    r"""Read the lines `key=value` of a request.

    >>> read_submission(b"min_cpus=4\nname=a%0Ab\n\n")
    Submission(numbers={'min_cpus': 4}, texts={'name': 'a\nb'})
    """
    numbers: dict[str, int] = {}
    texts: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        if not line:
            continue
        key, sign, value = line.partition("=")
        if not sign or not key.replace("_", "").isalpha():
            raise BadRequestLine(f"found the line {line[:40]!r}, expected key=value")
        if key not in TEXTS and value.isascii() and value.isdecimal() and len(value) < 19:
            numbers[key] = int(value)
        else:
            texts[key] = unquote(value)
    return Submission(numbers=numbers, texts=texts)


TEXTS: Final = frozenset(
    {
        "user_name", "name", "account", "partition", "comment", "features", "tres_per_node", "tres_per_job",
        "tres_per_task", "tres_per_socket", "mem_per_tres", "cpus_per_tres",
    }
)  # fmt: skip
"""Fields that stay text even if they look like a number, such as a job's name."""

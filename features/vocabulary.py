"""Fixed sets of values in the canonical tables (job states, task types), and maps from values of the traces to them.

The readers in `pipelines.lake.sources` translate each trace's spellings; only raw workload tags are translated here.
"""

from enum import StrEnum
from typing import Final

__all__ = ["GPU_MEM_GIB_OF_TYPE", "ROLE_WHOLE_JOB", "TASK_TYPE_OF_WORKLOAD", "Status", "TaskType"]

ROLE_WHOLE_JOB: Final = "job"
"""Role of a row that is a whole job (Helios, Philly); a PAI row is a task with the role that the trace names."""


class Status(StrEnum):
    """The status of a job at the end of its trace."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    OOM = "oom"
    RUNNING = "running"
    WAITING = "waiting"


ONGOING: Final = frozenset({Status.RUNNING, Status.WAITING})
"""Statuses of jobs that have not ended; a status is null if the trace records none."""

FAILURES: Final = frozenset({Status.FAILED, Status.NODE_FAIL, Status.OOM})
"""Statuses of jobs that ended by an error, by a machine's failure, or because they ran out of memory."""


class TaskType(StrEnum):
    """The kind of work of a job; run-time models are trained per kind."""

    CTR = "ctr"
    NLP = "nlp"
    CV = "cv"
    GNN = "gnn"
    RL = "rl"
    OTHER = "other"


TASK_TYPE_OF_WORKLOAD: Final[dict[str, TaskType]] = {
    "ctr": TaskType.CTR,
    "nmt": TaskType.NLP,
    "bert": TaskType.NLP,
    "xlnet": TaskType.NLP,
    "resnet": TaskType.CV,
    "inception": TaskType.CV,
    "vgg": TaskType.CV,
    "graphlearn": TaskType.GNN,
    "rl": TaskType.RL,
}
"""Task types by raw workload tag; a missing or unlisted tag is `TaskType.OTHER`."""

GPU_MEM_GIB_OF_TYPE: Final[dict[str, float]] = {"T4": 16.0, "P100": 16.0, "V100": 16.0, "V100M32": 32.0}
"""Memory of one device in GiB by GPU type; `MISC` and unknown types are not listed."""

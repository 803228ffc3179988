"""The closed vocabularies of the canonical tables: job states, task types, resources, devices.

Vendor spellings are translated in `pipelines.lake.sources` and do not appear here, except the raw workload tags.
Used by all packages.
"""

from enum import StrEnum
from typing import Final

__all__ = ["GPU_MEM_GIB_OF_TYPE", "ROLE_WHOLE_JOB", "TASK_TYPE_OF_WORKLOAD", "ZONES", "Status", "TaskType"]

ROLE_WHOLE_JOB: Final = "job"
"""The role of a unit that is a whole job (Helios, Philly); PAI's units are its tasks, named by the trace."""


class Status(StrEnum):
    """The state of a job at the end of its trace."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    RUNNING = "running"
    WAITING = "waiting"


ONGOING: Final = frozenset({Status.RUNNING, Status.WAITING})
"""States of jobs that have not ended. The state is null if the trace records none."""


class TaskType(StrEnum):
    """The kind of work, as the models are split by it."""

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
"""Raw workload tag to task type; a missing or unlisted tag is `TaskType.OTHER`."""

GPU_MEM_GIB_OF_TYPE: Final[dict[str, float]] = {"T4": 16.0, "P100": 16.0, "V100": 16.0, "V100M32": 32.0}
"""Memory of one device in GiB by GPU type; `MISC` and unknown types are not listed."""

ZONES: Final[dict[str, str]] = {
    "pai": "Asia/Shanghai",
    "helios": "Asia/Shanghai",
    "philly": "America/Los_Angeles",
}
"""The start of a trace's name to its time zone (`pai-synth` is under `pai`); any other trace is read in UTC."""

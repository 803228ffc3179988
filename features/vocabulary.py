"""Fixed sets of values in the canonical tables (job states, task types), and maps from values of the traces to them.

The readers in `pipelines.lake.sources` translate each trace's spellings; only raw workload tags are translated here.
"""

import re
from collections.abc import Iterator, Mapping
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

    @property
    def cut_short(self) -> bool:
        """Whether the job ended early, so that its use only shows its need until then."""
        return self in (Status.FAILED, Status.CANCELLED, Status.NODE_FAIL)


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

_SPELLING: Final = re.compile(r"nvidia|tesla|geforce|quadro|rtx|pcie|sxm[0-9]?|[^a-z0-9]")
_SIZE: Final = re.compile(r"(?<![0-9])([1-9][0-9]{0,2}) ?gi?b?(?![a-z0-9])")


class Cards(Mapping[str, float]):
    """Memory of one device in GiB by GPU type, which is listed here in any common spelling, or names its size.

    For alternatives, as in T4|V100, it is the smallest memory. A number above the memory of every listed card is no
    size.

    >>> cards = Cards({"T4": 16.0, "RTX4090": 24.0, "H100": 80.0})
    >>> cards["Tesla-T4"], cards["NVIDIA GeForce RTX 4090"], cards["nvidia_a100_80gb_pcie"], cards["H100|T4"]
    (16.0, 24.0, 80.0, 16.0)
    >>> cards.get("a100"), cards.get("T4|a100"), cards.get("NVIDIA GH200 480GB")
    (None, None, None)
    """

    def __init__(self, listed: Mapping[str, float]) -> None:
        self._listed = dict(listed)
        self._spelt = {_SPELLING.sub("", name.lower()): gib for name, gib in listed.items()}

    def __getitem__(self, gpu_type: str | None) -> float:
        return min(self._of_one(kind) for kind in (gpu_type or "").lower().split("|"))

    def _of_one(self, kind: str) -> float:
        known = self._spelt.get(_SPELLING.sub("", kind))
        if known is not None:
            return known
        sizes = [float(each) for each in _SIZE.findall(kind)]  # in 1g.5gb the last number is the memory
        if not sizes or sizes[-1] > max(self._listed.values()):
            raise KeyError(kind)
        return sizes[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


GPU_MEM_GIB_OF_TYPE: Final = Cards(
    dict.fromkeys(["T4", "P100", "V100", "V100M16", "A2", "A16"], 16.0)
    | {"V100M32": 32.0, "K80": 12.0, "P4": 8.0, "GTX1080Ti": 11.0, "RTX2080Ti": 11.0, "RTX5090": 32.0}
    | dict.fromkeys(["P40", "A10", "A10G", "A30", "L4", "RTX3090", "RTX4090"], 24.0)
    | dict.fromkeys(["A40", "A6000", "L20", "L40", "L40S", "RTX6000Ada"], 48.0)
    | {"H100": 80.0, "H800": 80.0, "H100NVL": 94.0, "H20": 96.0, "H200": 141.0, "B200": 180.0, "MI300X": 192.0}
)
"""Not listed, and so unknown without a size in the name: `MISC`, and cards sold in several sizes, such as A100."""

"""Rules for learning from feedback: when a finished job counts as shrunk, and which of its measurements may be learnt.

Pure functions; the state built from many jobs is `modelserve.learning.learned`. Called by `modelserve.learning` and
`pipelines.models.retrain`.
"""

from dataclasses import dataclass
from typing import Final

from features.vocabulary import Status
from modelserve.store.finished import OOM, SLACK, Finished, Outcome

__all__ = ["STATUS_OF_OUTCOME", "is_below", "shrunk_resources", "teachable_use"]

STATUS_OF_OUTCOME: Final[dict[str, Status]] = {
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    OOM: Status.FAILED,
    "cancelled": Status.CANCELLED,
    "timeout": Status.TIMEOUT,
    "node_fail": Status.NODE_FAIL,
}
"""The status in the canonical tables by reported outcome: a kill for memory is a failure there."""


def is_below(allocated: float | None, requested: float | None) -> bool:
    """Return whether less was allocated than requested; False if either is unknown."""
    return allocated is not None and requested is not None and allocated < requested * (1.0 - SLACK)


def shrunk_resources(row: Finished | Outcome) -> tuple[str, ...]:
    """Return the resources of which a job was allocated less than it requested."""
    pairs = (
        ("cpu_cores", row.alloc_cpu_cores, row.req_cpu_cores),
        ("mem_gib", row.alloc_mem_gib, row.req_mem_gib),
        ("gpus", row.alloc_gpus, row.req_gpus),
    )
    return tuple(name for name, allocated, requested in pairs if is_below(allocated, requested))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The use of one instance of a finished job that may be learnt from; None is unmeasured or not usable."""

    cpu_cores: float | None
    gpus: float | None
    mem_max_gib: float | None
    gpu_mem_max_gib: float | None

    @property
    def measured(self) -> bool:
        """Whether any measurement is left."""
        return any(v is not None for v in (self.cpu_cores, self.gpus, self.mem_max_gib, self.gpu_mem_max_gib))


def teachable_use(row: Finished) -> Use:
    """Return the measurements to learn from; of a shrunk resource, only use above the peak predicted for it.

    The use of a shrunk resource shows how much the job got, not how much it needed. It may therefore raise a floor but
    never lower one. A shrunk GPU share also limits the device memory.
    """
    shrunk = shrunk_resources(row)

    def kept(used: float | None, peak: float | None, resource: str) -> float | None:
        if used is None or resource not in shrunk:
            return used
        return used if peak is not None and used > peak else None

    return Use(
        cpu_cores=kept(row.used_cpu_cores, row.peak_cpu_cores, "cpu_cores"),
        gpus=kept(row.used_gpus, row.peak_gpus, "gpus"),
        mem_max_gib=kept(row.mem_max_gib, row.peak_mem_gib, "mem_gib"),
        gpu_mem_max_gib=kept(row.gpu_mem_max_gib, row.peak_gpu_mem_gib, "gpus"),
    )

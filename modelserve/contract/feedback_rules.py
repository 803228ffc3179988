"""Rules for learning from feedback: when a finished job counts as shrunk, and which of its measurements may be used.

The state learnt from many jobs is in `modelserve.learning.learned`.
"""

from dataclasses import dataclass, replace
from typing import Final

from features.vocabulary import Status
from modelserve.amounts import is_below, is_capped
from modelserve.store.finished import OOM, RESOURCES, Finished, Outcome

__all__ = ["STATUS_OF_OUTCOME", "is_mixed_up", "shrunk_resources", "teachable_use"]

GIB_IN_MIB: Final = 1024.0
UNITS_OFF: Final = 2.0
"""Factor by which a ratio may be off `GIB_IN_MIB` for units to count as mixed up."""

STATUS_OF_OUTCOME: Final[dict[str, Status]] = {
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    OOM: Status.OOM,
    "cancelled": Status.CANCELLED,
    "timeout": Status.TIMEOUT,
    "node_fail": Status.NODE_FAIL,
}
"""Status of a job in the canonical tables, by reported outcome."""


def is_mixed_up(used: float | None, predicted: float | None) -> bool:
    """Return whether memory differs from its prediction by a factor of about 1024, as if MiB and GiB were mixed up."""
    if not used or not predicted:
        return False
    return GIB_IN_MIB / UNITS_OFF <= max(used / predicted, predicted / used) <= GIB_IN_MIB * UNITS_OFF


def shrunk_resources(row: Outcome) -> tuple[str, ...]:
    """Return the resources of which a job got less than it requested."""
    amounts = zip(RESOURCES, row.allocations, row.requests, strict=True)
    return tuple(name for name, allocated, requested in amounts if is_below(allocated, requested))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The measured use per instance of a finished job; None if not measured, or if models must not learn from it."""

    cpu_cores: float | None
    gpus: float | None
    mem_max_gib: float | None
    gpu_mem_max_gib: float | None

    @property
    def measured(self) -> bool:
        """Whether models may learn from at least one measurement."""
        return any(v is not None for v in (self.cpu_cores, self.gpus, self.mem_max_gib, self.gpu_mem_max_gib))


def teachable_use(row: Finished) -> Use:
    """Return the measurements of a job from which models may learn.

    A job killed for memory needed at least its allocation, whatever its measured peak. Use near the allocation of a
    shrunk resource (`is_capped`) shows what the job was given, not what it needed. It is therefore returned only if it
    is above the predicted peak, so that it can raise later predictions but never lower them. The same holds for all
    measurements of a job that was cut short, and for GPU memory if the GPU share was shrunk. If memory is in mixed-up
    units, neither is returned.
    """
    sure = not STATUS_OF_OUTCOME[row.outcome].cut_short
    allocated = dict(zip(RESOURCES, row.allocations, strict=True))
    given = {name: allocated[name] for name in shrunk_resources(row)}
    if "gpus" in given:
        given["gpu_mem_gib"] = None  # what a share holds of a device's memory is unknown
    if is_mixed_up(row.mem_max_gib, row.peak_mem_gib) or is_mixed_up(row.gpu_mem_max_gib, row.peak_gpu_mem_gib):
        row = replace(row, mem_max_gib=None, gpu_mem_max_gib=None)

    def kept(used: float | None, peak: float | None, resource: str) -> float | None:
        if used is None or (sure and (resource not in given or not is_capped(used, given[resource]))):
            return used
        return used if peak is not None and used > peak else None

    return Use(
        cpu_cores=kept(row.used_cpu_cores, row.peak_cpu_cores, "cpu_cores"),
        gpus=kept(row.used_gpus, row.peak_gpus, "gpus"),
        mem_max_gib=kept(_needed_mem_gib(row), row.peak_mem_gib, "mem_gib"),
        gpu_mem_max_gib=kept(row.gpu_mem_max_gib, row.peak_gpu_mem_gib, "gpu_mem_gib"),
    )


def _needed_mem_gib(row: Finished) -> float | None:
    known = [gib for gib in (row.mem_max_gib, row.alloc_mem_gib if row.outcome == OOM else None) if gib is not None]
    return max(known, default=None)

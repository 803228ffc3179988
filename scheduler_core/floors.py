"""Floors: how little of each resource a job was seen to need, and the grid on which GPUs are shared.

Pure arithmetic on arrays; which candidate is taken is decided in `shrink`.
Called by `scheduler_core.shrink` only.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from scheduler_core.types import RESOURCES, FloatArray, Job, PeakUse

ROUNDING_SLACK: Final = 1e-9
"""What a quotient may exceed a whole number by and still count as that number (0.15 / 0.05 is 3.0000000000000004)."""


def round_up_gpus(gpus: FloatArray, grid: float) -> FloatArray:
    """Round GPU shares upward: to a multiple of `grid` below one GPU, to whole GPUs above.

    >>> import numpy as np
    >>> round_up_gpus(np.array([0.12, 0.15, 0.97, 1.1, 4.0]), 0.05).tolist()
    [0.15, 0.15, 1.0, 2.0, 4.0]
    """
    shares = np.round(np.ceil(gpus / grid - ROUNDING_SLACK) * grid, 12)
    return np.where(shares < 1.0, shares, np.ceil(gpus - ROUNDING_SLACK))


def device_memory(gpu_types: list[str | None], known_gib: Mapping[str, float], assumed_gib: float) -> FloatArray:
    """Return the memory of one device in GiB per job (n,); types that are not known take the assumed value."""
    return np.array([known_gib.get(kind, assumed_gib) if kind else assumed_gib for kind in gpu_types], dtype=np.float64)


def minimum_requests(jobs: Sequence[Job]) -> FloatArray:
    """Return what each job is never given less of (n, 3), 0 where there is no such minimum."""
    minimums = np.zeros((len(jobs), len(RESOURCES)))
    for i, job in enumerate(jobs):
        if job.minimum is not None:
            minimums[i] = job.minimum.row()
    return np.fmax(minimums, 0.0)


def peak_floors(
    peak: PeakUse,
    device_gib: FloatArray,
    *,
    cpu_margin: float,
    mem_margin: float,
    gpu_margin: float,
    gpu_mem_margin: float,
    min_runs: int,
) -> FloatArray:
    """Return the floor per job and resource (n, 3), NaN where fewer than `min_runs` runs were measured.

    The GPU floor is the larger of the share that was busy and the share whose memory holds the peak GPU memory.
    """
    share_for_memory = peak.gpu_mem_gib * (1.0 + gpu_mem_margin) / device_gib
    floors = np.column_stack(
        [
            peak.cpu_cores * (1.0 + cpu_margin),
            peak.mem_gib * (1.0 + mem_margin),
            np.maximum(peak.gpus * (1.0 + gpu_margin), share_for_memory),
        ]
    )
    floors[peak.runs < min_runs] = np.nan
    return floors

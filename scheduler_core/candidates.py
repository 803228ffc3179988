"""Candidates of Algorithm 1 as arrays, with their floors and the GPU grid; axes are (job, alpha, resource).

No predictor is called here; `shrink` does that and chooses.
Called by `shrink`, `recommendations` and `pipelines.rightsizing`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray, Job, Knowledge, PeakUse

__all__ = ["device_memory", "peak_floors", "round_up_gpus"]

ROUNDING_SLACK: Final = 1e-9
"""A quotient that exceeds a whole number by less counts as that number (0.15 / 0.05 is 3.0000000000000004)."""


def round_up_gpus(gpus: FloatArray, grid: float) -> FloatArray:
    """Round GPU shares upward: to a multiple of `grid` below one GPU, to whole GPUs above.

    >>> import numpy as np
    >>> round_up_gpus(np.array([0.12, 0.15, 0.97, 1.1, 4.0]), 0.05).tolist()
    [0.15, 0.15, 1.0, 2.0, 4.0]
    """
    shares = np.round(np.ceil(gpus / grid - ROUNDING_SLACK) * grid, 12)
    return np.where(shares < 1.0, shares, np.ceil(gpus - ROUNDING_SLACK))


def device_memory(gpu_types: list[str | None], known_gib: Mapping[str, float], assumed_gib: float) -> FloatArray:
    """Return the memory of one device in GiB per job (n,); unknown types take the assumed value."""
    return np.array([known_gib.get(kind, assumed_gib) if kind else assumed_gib for kind in gpu_types], dtype=np.float64)


def minimum_requests(jobs: Sequence[Job]) -> FloatArray:
    """Return each job's minimum request (n, 3), 0 if it has none."""
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


GPUS = RESOURCES.index("gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Every candidate of a round.

    `values` are the candidate requests (n, A, 3): alpha times the request, not below floor and minimum, GPUs on the
    grid, never above the request. `floor_binds` marks where floor or minimum lie above alpha times the request.
    `judged` marks where the run-time model can judge the value; elsewhere the value is outside its training range, or
    the resource is important.
    """

    values: FloatArray
    floor_binds: BoolArray
    judged: BoolArray


def candidates_of(
    requests: FloatArray,
    alphas: FloatArray,
    floors: FloatArray | None,
    minimums: FloatArray,
    knowledge: Sequence[Knowledge],
    gpu_grid: float,
) -> Candidates:
    """Lay out the candidates of `requests` (n, 3); `floors` is None without the guard, NaN where unknown.

    `minimums` (n, 3) hold with and without the guard.

    Without the guard the model judges every value, as in the paper. With it, the model judges only values within the
    range of training requests, and none where training had one value only.
    """
    scaled = alphas[None, :, None] * requests[:, None, :]
    known_floors = np.zeros_like(requests) if floors is None else np.where(np.isnan(floors), np.inf, floors)
    needed = np.maximum(known_floors, minimums)
    values = np.maximum(scaled, needed[:, None, :])
    values[..., GPUS] = _shares(values[..., GPUS], requests[:, None, GPUS], gpu_grid)
    values = np.minimum(values, requests[:, None, :])
    binds = np.broadcast_to(needed[:, None, :], scaled.shape) > scaled

    known = np.isfinite(requests) & ~important_resources(knowledge)
    judged = np.broadcast_to(known[:, None, :], values.shape)
    if floors is not None:
        low, high = _support(knowledge)
        seen = (values >= low[:, None, :]) & (values <= high[:, None, :]) & (low < high)[:, None, :]
        judged = judged & seen & np.isfinite(floors)[:, None, :]
    return Candidates(values=values, floor_binds=binds, judged=judged)


def chosen_alpha(judged: BoolArray, accepted: IntArray, movable: BoolArray) -> IntArray:
    """Return the index of the alpha each resource takes (n, 3), -1 where it keeps its request.

    `accepted` is the first alpha the model let pass (n,), or A where none passed. A resource that the model judges at
    that alpha takes it. Any other takes the smallest alpha from which the model judges none of the values up to there,
    so that only the floor limits it.
    """
    jobs, count, _ = judged.shape
    steps = np.arange(count)[None, :, None]
    unjudged_since = np.maximum.accumulate(np.where(judged, steps + 1, 0), axis=1)
    last = np.minimum(accepted, count - 1)
    at = np.arange(jobs)
    judges = judged[at, last]
    chosen = np.where(judges, last[:, None], unjudged_since[at, last])
    refused = judges & (accepted == count)[:, None]
    return np.where(movable & ~refused, chosen, -1)


def _shares(gpus: FloatArray, requests: FloatArray, grid: float) -> FloatArray:
    # A job that requested a GPU keeps at least one step of the grid: without any it could not run.
    return np.where(requests > 0.0, np.maximum(round_up_gpus(gpus, grid), grid), gpus)


def important_resources(knowledge: Sequence[Knowledge]) -> BoolArray:
    """Mark the resources that are important to each job's run-time model (n, 3)."""
    return np.array([[resource in known.important for resource in RESOURCES] for known in knowledge], dtype=np.bool_)


def _support(knowledge: Sequence[Knowledge]) -> tuple[FloatArray, FloatArray]:
    nothing = (np.nan, np.nan)
    ends = np.array(
        [[known.support.get(resource, nothing) for resource in RESOURCES] for known in knowledge], dtype=np.float64
    )
    return ends[..., 0], ends[..., 1]

"""The candidates of Algorithm 1 as arrays: what each would give, and on which of them the run-time model may speak.

Axes are always (job, alpha, resource). No predictor is asked here; that is `shrink`.
Called by `scheduler_core.shrink` only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray, Job, Knowledge, PeakUse

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


GPUS = RESOURCES.index("gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Every candidate of a round.

    `values` is what each candidate would give (n, A, 3): alpha times the request, not below floor and minimum, GPUs on
    the grid, never above the request. `floor_binds` marks where floor or minimum lie above alpha times the request.
    `spoken` marks where the run-time model may judge the value; elsewhere it is silent (or the resource is important).
    """

    values: FloatArray
    floor_binds: BoolArray
    spoken: BoolArray


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

    Without the guard the model is taken to know everything, as the paper does. With it, the model is silent where the
    candidate lies outside the requests seen in training, or where training saw one value only.
    """
    scaled = alphas[None, :, None] * requests[:, None, :]
    known_floors = np.zeros_like(requests) if floors is None else np.where(np.isnan(floors), np.inf, floors)
    needed = np.maximum(known_floors, minimums)
    values = np.maximum(scaled, needed[:, None, :])
    values[..., GPUS] = _shares(values[..., GPUS], requests[:, None, GPUS], gpu_grid)
    values = np.minimum(values, requests[:, None, :])
    binds = np.broadcast_to(needed[:, None, :], scaled.shape) > scaled

    known = np.isfinite(requests) & ~important_resources(knowledge)
    spoken = np.broadcast_to(known[:, None, :], values.shape)
    if floors is not None:
        low, high = _support(knowledge)
        seen = (values >= low[:, None, :]) & (values <= high[:, None, :]) & (low < high)[:, None, :]
        spoken = spoken & seen & np.isfinite(floors)[:, None, :]
    return Candidates(values=values, floor_binds=binds, spoken=spoken)


def chosen_alpha(spoken: BoolArray, accepted: IntArray, movable: BoolArray) -> IntArray:
    """Return the index of the alpha each resource takes (n, 3), -1 where it keeps its request.

    `accepted` is the first alpha the model let pass (n,), or A where none passed. A resource the model speaks about
    takes that alpha. A silent one is neither permitted nor forbidden by the model: it takes the smallest alpha from
    which the model has stayed silent up to there, so the floor alone holds it.
    """
    jobs, count, _ = spoken.shape
    steps = np.arange(count)[None, :, None]
    silent_since = np.maximum.accumulate(np.where(spoken, steps + 1, 0), axis=1)
    last = np.minimum(accepted, count - 1)
    at = np.arange(jobs)
    speaks = spoken[at, last]
    chosen = np.where(speaks, last[:, None], silent_since[at, last])
    refused = speaks & (accepted == count)[:, None]
    return np.where(movable & ~refused, chosen, -1)


def _shares(gpus: FloatArray, requests: FloatArray, grid: float) -> FloatArray:
    # A job that asked for a GPU keeps at least one step of one: with none it could not run at all.
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

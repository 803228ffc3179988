"""Candidate requests of Algorithm 1, shape (jobs, alphas, resources): alpha times the request, but not below floors.

A floor is the predicted peak use plus a margin. `shrink` predicts run times of the candidates and chooses among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray, Job, Knowledge, PeakUse

__all__ = ["device_memory", "peak_floors", "round_up_gpus"]

ROUNDING_SLACK: Final = 1e-9
"""Excess over a whole number that is ignored when a quotient is rounded up (0.15 / 0.05 is 3.0000000000000004)."""


def round_up_gpus(gpus: FloatArray, grid: float) -> FloatArray:
    """Round GPU requests up: below one GPU to a multiple of `grid`, above one GPU to whole GPUs.

    >>> import numpy as np
    >>> round_up_gpus(np.array([0.12, 0.15, 0.97, 1.1, 4.0]), 0.05).tolist()
    [0.15, 0.15, 1.0, 2.0, 4.0]
    """
    shares = np.round(np.ceil(gpus / grid - ROUNDING_SLACK) * grid, 12)
    return np.where(shares < 1.0, shares, np.ceil(gpus - ROUNDING_SLACK))


def device_memory(gpu_types: list[str | None], known_gib: Mapping[str, float], assumed_gib: float) -> FloatArray:
    """Return the memory per GPU in GiB for each job (n,), by its GPU type; `assumed_gib` for an unknown type."""
    return np.array([known_gib.get(kind, assumed_gib) if kind else assumed_gib for kind in gpu_types], dtype=np.float64)


def minimum_requests(jobs: Sequence[Job]) -> FloatArray:
    """Return each job's minimum request (n, 3), 0 where a job has none."""
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
    """Return the floor below which each resource of each job must not shrink (n, 3).

    A floor is the predicted peak use plus a margin, NaN for jobs with fewer than `min_runs` measured runs. The GPU
    floor is at least the share of a GPU whose memory can hold the peak GPU memory.
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
    """Candidate requests of all jobs in one call of Algorithm 1: n jobs, A values of alpha, 3 resources.

    `values` (n, A, 3) holds alpha times the request, raised to floor and minimum, with GPUs rounded up, but at most the
    request. `floor_binds` marks values for which floor or minimum exceeds alpha times the request. `judged` marks
    values whose predicted run time counts. It does not count outside the run-time model's training range, nor for a
    resource that is important to the model and so keeps its request.
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
    """Build the candidates of all jobs from their requests (n, 3).

    `floors` (n, 3) is NaN where unknown; `minimums` (n, 3) always apply. If `floors` is None (guard `none`), the
    predicted run time counts for every value, as in Yang, Hong and Tang. Otherwise it counts only within the range of
    training requests, and not if all training requests were equal.
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
    """Return the index of the alpha that each resource takes (n, 3), -1 where it keeps its request.

    `accepted` (n,) is the index of the first alpha whose predicted run time is acceptable, A if there is none. A
    resource that is `judged` at the accepted alpha takes that alpha. Any other resource takes the smallest alpha from
    which on, up to the accepted alpha, it is never judged. A resource not marked in `movable` (n, 3) keeps its request.
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
    # A job that requested GPUs keeps at least the smallest share (`grid`), since it cannot run without GPU.
    return np.where(requests > 0.0, np.maximum(round_up_gpus(gpus, grid), grid), gpus)


def important_resources(knowledge: Sequence[Knowledge]) -> BoolArray:
    """Return which resources are important to each job's run-time model (n, 3)."""
    return np.array([[resource in known.important for resource in RESOURCES] for known in knowledge], dtype=np.bool_)


def _support(knowledge: Sequence[Knowledge]) -> tuple[FloatArray, FloatArray]:
    nothing = (np.nan, np.nan)
    ends = np.array(
        [[known.support.get(resource, nothing) for resource in RESOURCES] for known in knowledge], dtype=np.float64
    )
    return ends[..., 0], ends[..., 1]

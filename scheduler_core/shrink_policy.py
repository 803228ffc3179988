"""The parameters of Algorithm 1, and the floors of peak use that its guard keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray, PeakUse

__all__ = ["MAX_ALPHA", "PAPER_ALPHA0", "SURE_RUNS", "Guard", "ShrinkPolicy", "round_up_gpus"]

ALPHA0: Final = 0.05
"""Smallest factor alpha under the guard `usage`, where floors of peak use keep targets from being too small."""

PAPER_ALPHA0: Final = 0.5
"""Smallest factor alpha without floors (ours), to reproduce Yang, Hong and Tang, who do not state theirs."""

SURE_RUNS: Final = 50
"""Default of `ShrinkPolicy.sure_runs`: with so many measured runs of similar jobs, no resource counts as important."""

MAX_ALPHA: Final = 0.99
"""Maximum of `ShrinkPolicy.alpha0`; with a larger one hardly any request would shrink."""

ROUNDING_SLACK: Final = 1e-9
"""Excess over a whole number that is ignored when a quotient is rounded up (0.15 / 0.05 is 3.0000000000000004)."""

Guard = Literal["none", "usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkPolicy:
    """The parameters of Algorithm 1 and of the guard around it.

    The studies evaluate these defaults; all commands and the service use them unless configured otherwise.

    `alpha0`, `alpha_step`: the candidates are the original request times alpha0, alpha0 + alpha_step, ... below 1. If
    `alpha0` is None it is `ALPHA0`, or `PAPER_ALPHA0` under guard `none`, which has no floors.
    `theta`: upper limit of the relative change of the predicted run time that a candidate may cause.
    `guard`: `usage` keeps every target at or above the predicted peak use; `none` has no floors, as in Yang, Hong and
    Tang.
    `min_runs`: minimum number of measured runs for a floor; with fewer the request is kept (`cold_start`).
    `sure_runs`: with at least as many measured runs of similar jobs, no resource counts as important. Importance
    is estimated over all jobs of a task type, so use measured on similar jobs outweighs it. With infinity, important
    resources never shrink; with a number below `min_runs`, they may shrink wherever there is a floor.
    `minimum_change`: relative saving below which a resource keeps its request, and relative excess of peak use over
    the request up to which no raise is recommended (guard `usage` only).
    `*_margin`: relative margin of a floor above the peak, on top of the margin in a predicted peak (`ROOM` of
    `modelserve.bundle.alike`). A job with too little memory dies, so memory has a
    margin. A job with too little CPU or GPU only runs more slowly, so these have no margin by default.
    `gpu_grid`: step to which GPU requests below one GPU are rounded; larger requests are whole GPUs.
    `device_mem_gib`: memory of one GPU by GPU type. For a type that is not listed, floors assume
    `assumed_device_mem_gib`, which is less than most cards have. Memory on an unknown card never raises a request.
    """

    alpha0: float | None = None
    alpha_step: float = 0.05
    theta: float = 0.05
    guard: Guard = "usage"
    min_runs: int = 3
    sure_runs: float = SURE_RUNS
    minimum_change: float = 0.05
    cpu_margin: float = 0.0
    mem_margin: float = 0.15
    gpu_margin: float = 0.0
    gpu_mem_margin: float = 0.15
    gpu_grid: float = 0.05
    device_mem_gib: Mapping[str, float] = field(default_factory=dict)
    assumed_device_mem_gib: float = 16.0

    def __post_init__(self) -> None:
        checks = {
            "alpha0": 0.0 <= self.first_alpha <= MAX_ALPHA,
            "alpha_step": 0.0 < self.alpha_step <= 1.0,
            "theta": self.theta > 0.0,
            "guard": self.guard in ("none", "usage"),
            "min_runs": self.min_runs >= 0,
            "sure_runs": self.sure_runs >= 0,
            "minimum_change": 0.0 <= self.minimum_change < 1.0,
            "cpu_margin": self.cpu_margin >= 0.0,
            "mem_margin": self.mem_margin >= 0.0,
            "gpu_margin": self.gpu_margin >= 0.0,
            "gpu_mem_margin": self.gpu_mem_margin >= 0.0,
            "gpu_grid": 0.0 < self.gpu_grid <= 1.0,
            "assumed_device_mem_gib": self.assumed_device_mem_gib > 0.0,
        }
        for name, holds in checks.items():
            if not holds:
                raise BadInput(f"shrink policy: {name}={getattr(self, name)!r} is out of its range; see ShrinkPolicy")

    @property
    def first_alpha(self) -> float:
        """Return the smallest factor alpha to try."""
        if self.alpha0 is not None:
            return self.alpha0
        return PAPER_ALPHA0 if self.guard == "none" else ALPHA0

    def alphas(self) -> FloatArray:
        """Return the factors alpha of the candidates in ascending order, all below 1."""
        count = int(np.ceil((1.0 - self.first_alpha) / self.alpha_step - ROUNDING_SLACK))
        return np.round(self.first_alpha + self.alpha_step * np.arange(count), 12)

    def memory_shares(self, gib: FloatArray, gpu_types: Sequence[str | None], *, assume: bool = True) -> FloatArray:
        """Return the number of GPUs (n,) whose memory holds `gib` (n,); without `assume`, 0 for an unknown card."""
        unknown = self.assumed_device_mem_gib if assume else np.inf
        known = self.device_mem_gib
        return gib / np.array([known.get(kind, unknown) if kind else unknown for kind in gpu_types], dtype=np.float64)

    def floors(
        self, peak: PeakUse, gpu_types: Sequence[str | None], *, margins: bool = True, assume: bool = True
    ) -> FloatArray:
        """Return the floor below which each resource of each job must not shrink (n, 3).

        A floor is the predicted peak use plus a margin, NaN for jobs with fewer than `min_runs` measured runs. The GPU
        floor is at least the share of a GPU whose memory can hold the peak GPU memory (`memory_shares`).
        """
        cpu, mem, gpu, gpu_mem = (
            1.0 + (margin if margins else 0.0)
            for margin in (self.cpu_margin, self.mem_margin, self.gpu_margin, self.gpu_mem_margin)
        )
        gpus = np.maximum(peak.gpus * gpu, self.memory_shares(peak.gpu_mem_gib * gpu_mem, gpu_types, assume=assume))
        floors = np.column_stack([peak.cpu_cores * cpu, peak.mem_gib * mem, gpus])
        floors[peak.runs < self.min_runs] = np.nan
        return floors


def round_up_gpus(gpus: FloatArray, grid: float) -> FloatArray:
    """Round GPU requests up: below one GPU to a multiple of `grid`, above one GPU to whole GPUs.

    >>> import numpy as np
    >>> round_up_gpus(np.array([0.12, 0.15, 0.97, 1.1, 4.0]), 0.05).tolist()
    [0.15, 0.15, 1.0, 2.0, 4.0]
    """
    shares = np.round(np.ceil(gpus / grid - ROUNDING_SLACK) * grid, 12)
    return np.where(shares < 1.0, shares, np.ceil(gpus - ROUNDING_SLACK))

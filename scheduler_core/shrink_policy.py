"""The parameters of Algorithm 1 and of the guard around it, and what they are unless somebody says otherwise.

Values only; what they do is `shrink`'s matter, whose names for the outside these are too.
Called by `scheduler_core.shrink`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.floors import ROUNDING_SLACK
from scheduler_core.types import FloatArray

ALPHA0: Final = 0.05
"""First factor above floors of peak use: a request goes as far down as its floors let it."""

PAPER_ALPHA0: Final = 0.5
"""First factor without floors, as the paper is reproduced; the paper itself gives none."""

SURE_RUNS: Final = 50
"""Measured runs (or groups of jobs alike) that outweigh the importance of a request."""

MAX_ALPHA: Final = 0.99
"""Largest first factor: a request that may keep more than this is not shrunk at all."""

Guard = Literal["none", "usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkPolicy:
    """The parameters of Algorithm 1 and of the guard around it.

    These defaults are what the experiments measure, and what every command and the service give unless told otherwise.

    `alpha0`, `alpha_step`: the candidates are alpha0, alpha0 + step, ... below one, times the original request. None
    begins at `ALPHA0`, and at `PAPER_ALPHA0` where no floor holds (guard `none`).
    `theta`: largest relative change of the predicted run time that a candidate may cause.
    `guard`: `usage` keeps every target above the peak use that was measured; `none` is the paper, without floors.
    `min_runs`: measured runs below which the floor is not trusted and the request stands (`cold_start`).
    `sure_runs`: measured runs from which no resource counts as important: importance tells jobs of different requests
    apart, while so many runs tell what jobs of this one need. Infinite: never; below `min_runs`: wherever a floor is.
    `minimum_change`: relative change below which a request is left alone (guard `usage` only).
    `*_margin`: how far a floor lies above the predicted peak. Memory is a hard floor (below it the job dies), so it
    carries a margin; CPU and GPU are soft (below them the job slows), so by default they carry none.
    `gpu_grid`: step of GPU shares below one GPU; above, GPUs are whole.
    `device_mem_gib`: memory of one device by GPU type; unlisted types take `assumed_device_mem_gib`.
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
            "gpu_grid": 0.0 < self.gpu_grid <= 1.0,
            "assumed_device_mem_gib": self.assumed_device_mem_gib > 0.0,
            **{
                name: getattr(self, name) >= 0.0
                for name in ("cpu_margin", "mem_margin", "gpu_margin", "gpu_mem_margin")
            },
        }
        for name, holds in checks.items():
            if not holds:
                raise BadInput(f"shrink policy: {name}={getattr(self, name)!r} is out of its range; see ShrinkPolicy")

    @property
    def first_alpha(self) -> float:
        """Return the smallest factor that is tried."""
        if self.alpha0 is not None:
            return self.alpha0
        return PAPER_ALPHA0 if self.guard == "none" else ALPHA0

    def alphas(self) -> FloatArray:
        """Return the candidates' factors in ascending order, all below one."""
        count = int(np.ceil((1.0 - self.first_alpha) / self.alpha_step - ROUNDING_SLACK))
        return np.round(self.first_alpha + self.alpha_step * np.arange(count), 12)

"""Truths: what the run of a job becomes once it was given less than it asked for.

Three answers to one open question, all reported; recorded runs hold no job that ran twice with less.
Called by `simulator` when a job starts; the registry at the end is what names refer to.
"""
# ruff: noqa: ARG001 -- every truth has the one signature, whichever arguments it looks at

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler_core.errors import BadInput
from scheduler_core.types import Recommendation, Request

ALLOCATION_SLACK: Final = 1e-9
"""Relative shortfall that counts as none: targets and needs come from different roundings of the same number."""

KILLED_AFTER_FRAC: Final = 0.5
"""When a job short of memory dies, as a fraction of the run it would have had.

The traces say how high memory peaks and not when. Half of the run is the mean of a peak at a uniformly random moment,
and keeps a replay free of one more random number.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a recorded run was: its run time and what one instance used; `device_mem_gib` is one GPU's memory.

    CPU and GPU are means over the run; `mem_gib` and `gpu_mem_gib` are the largest peaks over instances.
    """

    run_s: float
    cpu_cores: float
    mem_gib: float
    gpus: float
    gpu_mem_gib: float
    mem_avg_gib: float
    device_mem_gib: float

    def __post_init__(self) -> None:
        if not self.run_s > 0.0:
            raise BadInput(f"recorded run: found a run time of {self.run_s} s, expected more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a job needs to run as recorded, per instance: what it used, as far as its request went."""

    cpu_cores: float
    mem_gib: float
    gpus: float
    gpu_mem_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How long a run will hold its allocation, and whether it dies then instead of completing.

    `stretch` is how much slower than recorded the work proceeds meanwhile.
    """

    run_s: float
    stretch: float = 1.0
    killed: bool = False


Truth = Callable[[Measured, Request, Request, Recommendation | None], Outcome]
"""`(measured, request, allocated, recommendation) -> outcome` of one run."""


def need_of(measured: Measured, request: Request) -> Need:
    """Return min(measured, request) per resource: what a job used beyond its request it got anyway.

    A request for GPU memory is the request for GPUs times the device's memory. A resource the trace lacks (NaN in the
    request) bounds nothing.

    >>> used = Measured(
    ...     run_s=60, cpu_cores=9, mem_gib=3, gpus=0.1, gpu_mem_gib=9, mem_avg_gib=2, device_mem_gib=16
    ... )
    >>> need_of(used, Request(cpu_cores=6, mem_gib=8, gpus=0.5))
    Need(cpu_cores=6, mem_gib=3, gpus=0.1, gpu_mem_gib=8.0)
    """
    return Need(
        cpu_cores=_bounded(measured.cpu_cores, request.cpu_cores),
        mem_gib=_bounded(measured.mem_gib, request.mem_gib),
        gpus=_bounded(measured.gpus, request.gpus),
        gpu_mem_gib=_bounded(measured.gpu_mem_gib, request.gpus * measured.device_mem_gib),
    )


def unchanged(
    measured: Measured, request: Request, allocated: Request, recommendation: Recommendation | None
) -> Outcome:
    """Run as long as recorded, whatever was given: the paper's truth."""
    return Outcome(run_s=measured.run_s)


def predicted(
    measured: Measured, request: Request, allocated: Request, recommendation: Recommendation | None
) -> Outcome:
    """Run T/t times the recorded time, as the model said of the accepted candidate; as recorded at the full request."""
    if recommendation is None or allocated == request or math.isnan(recommendation.run_time_change):
        return Outcome(run_s=measured.run_s)
    stretch = 1.0 + recommendation.run_time_change
    return Outcome(run_s=measured.run_s * stretch, stretch=stretch)


def contention(
    measured: Measured, request: Request, allocated: Request, recommendation: Recommendation | None
) -> Outcome:
    """Stretch the run by its worst shortage of CPU or GPU; kill it when memory or GPU memory falls short of need.

    stretch = max over CPU and GPU of max(1, need / allocated). At the full request it is 1 by construction.

    >>> used = Measured(
    ...     run_s=60, cpu_cores=4, mem_gib=3, gpus=0.1, gpu_mem_gib=1, mem_avg_gib=2, device_mem_gib=16
    ... )
    >>> contention(used, Request(cpu_cores=6, mem_gib=8, gpus=0.5), Request(cpu_cores=2, mem_gib=4, gpus=0.25), None)
    Outcome(run_s=120.0, stretch=2.0, killed=False)
    """
    need = need_of(measured, request)
    stretch = max(1.0, _shortage(need.cpu_cores, allocated.cpu_cores), _shortage(need.gpus, allocated.gpus))
    run_s = measured.run_s * stretch
    short_of_memory = (
        _shortage(need.mem_gib, allocated.mem_gib) > 1.0
        or _shortage(need.gpu_mem_gib, allocated.gpus * measured.device_mem_gib) > 1.0
    )
    held_s = run_s * KILLED_AFTER_FRAC if short_of_memory else run_s
    return Outcome(run_s=held_s, stretch=stretch, killed=short_of_memory)


def _bounded(used: float, request: float) -> float:
    return used if math.isnan(request) else min(used, request)


def _shortage(need: float, allocated: float) -> float:
    """Return need over allocated where the allocation falls short, else 1."""
    if math.isnan(allocated) or need <= allocated * (1.0 + ALLOCATION_SLACK):
        return 1.0
    return need / allocated if allocated > 0.0 else math.inf


TRUTHS: Final[dict[str, Truth]] = {"unchanged": unchanged, "predicted": predicted, "contention": contention}

"""Slowdown models: how long a job runs if it is given less than it requested, computed from its recorded run.

No trace holds the same job with two different requests, so the true slowdown is unknown and results are reported under
several models (`SLOWDOWN_MODELS`).
"""

# ruff: noqa: ARG001 -- all models have the same signature, although some ignore arguments

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipelines.simulation.engine import partition
from scheduler_core.errors import BadInput
from scheduler_core.types import Job, Recommendation, Request

__all__ = ["SLOWDOWN_MODELS", "USUAL_MODELS", "contention_ideal"]

ALLOCATION_SLACK: Final = 1e-9
"""Maximum relative shortfall of an allocation that is ignored, because it may be due to rounding."""

KILLED_AFTER_FRAC: Final = 0.5
"""Fraction of its run after which a job with too little memory is killed.

The traces record the height of the memory peak but not its time. One half is the mean if the peak is equally likely at
any time of the run.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A recorded run: its run time and the resource use of one instance; `device_mem_gib` is the memory of one GPU.

    `cpu_cores`, `gpus` and `mem_avg_gib` are means over the run; `mem_gib` and `gpu_mem_gib` are the peaks of the
    instance with the highest peak. `gpu_spread` is the place of the job's program among those of its GPU use, in
    standard deviations (see `partition.width`).
    """

    run_s: float
    cpu_cores: float
    mem_gib: float
    gpus: float
    gpu_mem_gib: float
    mem_avg_gib: float
    device_mem_gib: float
    gpu_spread: float = 0.0

    def __post_init__(self) -> None:
        if not self.run_s > 0.0:
            raise BadInput(f"recorded run: found a run time of {self.run_s} s, expected more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The resources that an instance needs to run as fast as recorded: min(measured use, request)."""

    cpu_cores: float
    mem_gib: float
    gpus: float
    gpu_mem_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkRun:
    """How long a job holds a smaller allocation, and whether it is then killed instead of completing.

    `stretch` is the factor by which the job runs slower than recorded.
    """

    run_s: float
    stretch: float = 1.0
    killed: bool = False


SlowdownModel = Callable[[Measured, Request, Request, Recommendation | None], ShrunkRun]
"""A function `(measured, request, allocated, recommendation)` that returns the run on the smaller allocation."""


def need_of(measured: Measured, request: Request) -> Need:
    """Return min(measured, request) per resource, because no job is given more than its request.

    Requested GPU memory is the requested GPUs times the device's memory. A resource that the trace lacks (NaN in the
    request) is not bounded.

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
) -> ShrunkRun:
    """Return the recorded run time, whatever is allocated: the assumption of Yang, Hong and Tang."""
    return ShrunkRun(run_s=measured.run_s)


def predicted(
    measured: Measured, request: Request, allocated: Request, recommendation: Recommendation | None
) -> ShrunkRun:
    """Multiply the recorded run time by 1 + the relative change predicted for the recommended request.

    A job with its full request, or without a prediction, runs as long as recorded.
    """
    if recommendation is None or allocated == request or math.isnan(recommendation.run_time_change):
        return ShrunkRun(run_s=measured.run_s)
    stretch = 1.0 + recommendation.run_time_change
    return ShrunkRun(run_s=measured.run_s * stretch, stretch=stretch)


def contention(
    measured: Measured, request: Request, allocated: Request, recommendation: Recommendation | None
) -> ShrunkRun:
    """Stretch the run by its larger shortage of CPU or GPU; kill it if memory or GPU memory is below its need.

    A smaller GPU share is a hard partition, split evenly over the requested devices: it slows as measured (see
    `partition`), already where it is no smaller than the use. CPU stretches by max(1, need / allocated). At the full
    request the stretch is 1.

    >>> used = Measured(
    ...     run_s=60, cpu_cores=4, mem_gib=3, gpus=0.6, gpu_mem_gib=1, mem_avg_gib=2, device_mem_gib=16
    ... )
    >>> round(contention(used, Request(cpu_cores=6, mem_gib=8, gpus=1), Request(cpu_cores=6, mem_gib=8, gpus=0.7),
    ...     None).stretch, 2)
    1.14
    """
    need = need_of(measured, request)
    return _stretched(measured, need, allocated, _partitioned(need.gpus, request.gpus, allocated.gpus, measured))


def contention_ideal(
    measured: Measured, request: Request, allocated: Request, recommendation: Recommendation | None
) -> ShrunkRun:
    """Return the run as under `contention`, if a GPU share slows only by max(1, use / share).

    >>> used = Measured(
    ...     run_s=60, cpu_cores=4, mem_gib=3, gpus=0.1, gpu_mem_gib=1, mem_avg_gib=2, device_mem_gib=16
    ... )
    >>> contention_ideal(
    ...     used, Request(cpu_cores=6, mem_gib=8, gpus=0.5), Request(cpu_cores=2, mem_gib=4, gpus=0.25), None
    ... )
    ShrunkRun(run_s=120.0, stretch=2.0, killed=False)
    """
    need = need_of(measured, request)
    return _stretched(measured, need, allocated, _shortage(need.gpus, allocated.gpus))


def _stretched(measured: Measured, need: Need, allocated: Request, by_gpu: float) -> ShrunkRun:
    stretch = max(1.0, _shortage(need.cpu_cores, allocated.cpu_cores), by_gpu)
    run_s = measured.run_s * stretch
    short_of_memory = (
        _shortage(need.mem_gib, allocated.mem_gib) > 1.0
        or _shortage(need.gpu_mem_gib, allocated.gpus * measured.device_mem_gib) > 1.0
    )
    held_s = run_s * KILLED_AFTER_FRAC if short_of_memory else run_s
    return ShrunkRun(run_s=held_s, stretch=stretch, killed=short_of_memory)


def _partitioned(use: float, request: float, allocated: float, measured: Measured) -> float:
    """Return the slowdown on a smaller part of the requested GPUs, relative to the requested part."""
    if math.isnan(request) or math.isnan(allocated) or request <= allocated * (1.0 + ALLOCATION_SLACK):
        return 1.0
    devices = math.ceil(request)
    wide = partition.width(use / devices, measured.gpu_spread)
    asked = partition.slowdown(request / devices, wide)
    return partition.slowdown(allocated / devices, wide) / asked


def _bounded(used: float, request: float) -> float:
    return used if math.isnan(request) else min(used, request)


def _shortage(need: float, allocated: float) -> float:
    """Return need / allocated if the allocation is smaller than the need, else 1."""
    if math.isnan(allocated) or need <= allocated * (1.0 + ALLOCATION_SLACK):
        return 1.0
    return need / allocated if allocated > 0.0 else math.inf


SLOWDOWN_MODELS: Final[dict[str, SlowdownModel]] = {
    "unchanged": unchanged,
    "predicted": predicted,
    "contention": contention,
    "contention_ideal": contention_ideal,
}

USUAL_MODELS: Final = ("unchanged", "predicted", "contention")
"""Slowdown models of a simulation whose settings name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """A job of the pool with its recorded run. Schedulers and predictors do not see the run, except the oracle."""

    job: Job
    measured: Measured

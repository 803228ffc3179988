"""What a simulation comes to: jobs finished, capacity held and truly used, and the harm that was done.

Pure functions of a finished run; nothing is simulated or printed here.
Called by `pipelines.simulate` and by tests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.arrivals import SECONDS_PER_HOUR
from scheduler_core.cluster import UNITS, Cluster, demand_of
from scheduler_core.errors import BadInput
from scheduler_core.simulator import Execution, JobRecord, Simulation
from scheduler_core.truth import need_of
from scheduler_core.types import FloatArray

STRETCHED_ABOVE: Final = 1.01
"""A started job counts as stretched when its run takes over one per cent longer than recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One run in numbers, over the jobs that arrived in the window and the time of the window.

    `submitted` counts what can ever fit; `never_fits` lies outside it and outside every rate. `deployed` jobs started,
    `waiting` ones are queued at the end (killed ones again). Distributions are NaN where no job counts.
    `*_allocated_frac` and `*_used_frac` are time averages over capacity; used is what jobs truly drew (CPU and GPU
    work slowed by the stretch, mean memory), at most the allocation.
    Wait is arrival to first start of started jobs; JCT is arrival to end of completed ones. `stretch_*` is run time in
    the replay over recorded run time, waiting excluded, over all started jobs; runs cut by the end count in full.
    `killed` jobs died at least once, `retried` of them started again. `reclaimed_*` is request minus allocation over
    the time it was held, `killed_gpu_h` the GPU time held by runs that died.
    """

    submitted: int
    never_fits: int
    deployed: int
    completed: int
    running: int
    waiting: int
    complete_rate: float
    cpu_allocated_frac: float
    mem_allocated_frac: float
    gpu_allocated_frac: float
    cpu_used_frac: float
    mem_used_frac: float
    gpu_used_frac: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    jct_mean_s: float
    jct_p50_s: float
    jct_p95_s: float
    stretch_mean: float
    stretch_p99: float
    stretched_share: float
    killed: int
    retried: int
    reclaimed_cpu_core_h: float
    reclaimed_mem_gib_h: float
    reclaimed_gpu_h: float
    killed_gpu_h: float


def summarise(simulation: Simulation, *, warm_up_s: float = 0.0) -> Metrics:
    """Measure a run from `warm_up_s` to its end.

    References
    ----------
    Yang, Hong, Tang: CompleteRate = F / (F + Q); ResUtilization = used / total, averaged over the window.
    """
    if not 0.0 <= warm_up_s < max(simulation.end_s, 1e-9):
        raise BadInput(f"metrics: found a warm-up of {warm_up_s} s, expected 0 or more and below {simulation.end_s} s")
    arrived = [record for record in simulation.records if warm_up_s <= record.arrival.at_s <= simulation.end_s]
    counted = [record for record in arrived if not record.never_fits]
    started = [record for record in counted if record.executions]
    completed = [record for record in counted if record.completed_s is not None]
    waiting = [record for record in counted if _is_waiting(record)]
    waits = [record.executions[0].start_s - record.arrival.at_s for record in started]
    times = [record.completed_s - record.arrival.at_s for record in completed if record.completed_s is not None]
    stretches = [stretch(record) for record in started]
    held = _held(simulation, warm_up_s)
    finished_or_queued = len(completed) + len(waiting)
    return Metrics(
        submitted=len(counted),
        never_fits=len(arrived) - len(counted),
        deployed=len(started),
        completed=len(completed),
        running=len(counted) - finished_or_queued,
        waiting=len(waiting),
        complete_rate=len(completed) / finished_or_queued if finished_or_queued else math.nan,
        cpu_allocated_frac=float(held.allocated[0]),
        mem_allocated_frac=float(held.allocated[1]),
        gpu_allocated_frac=float(held.allocated[2]),
        cpu_used_frac=float(held.used[0]),
        mem_used_frac=float(held.used[1]),
        gpu_used_frac=float(held.used[2]),
        wait_mean_s=_mean(waits),
        wait_p50_s=_quantile(waits, 0.5),
        wait_p95_s=_quantile(waits, 0.95),
        jct_mean_s=_mean(times),
        jct_p50_s=_quantile(times, 0.5),
        jct_p95_s=_quantile(times, 0.95),
        stretch_mean=_mean(stretches),
        stretch_p99=_quantile(stretches, 0.99),
        stretched_share=_mean([float(value > STRETCHED_ABOVE) for value in stretches]),
        killed=sum(bool(record.killed_s) for record in counted),
        retried=sum(bool(record.killed_s) and len(record.executions) > 1 for record in counted),
        reclaimed_cpu_core_h=float(held.reclaimed[0]),
        reclaimed_mem_gib_h=float(held.reclaimed[1]),
        reclaimed_gpu_h=float(held.reclaimed[2]),
        killed_gpu_h=held.killed_gpu_h,
    )


def stretch(record: JobRecord) -> float:
    """Return run time in the replay over recorded run time of a started job, waiting excluded.

    The runs it lost to kills count; a run cut by the end counts in full, and so does the one a killed job still awaits.
    """
    recorded_s = record.arrival.drawn.measured.run_s
    held_s = sum(execution.outcome.run_s for execution in record.executions)
    # A killed job runs again with its full request, which by construction takes as long as recorded.
    awaited_s = recorded_s if record.executions[-1].outcome.killed else 0.0
    return (held_s + awaited_s) / recorded_s


def _is_waiting(record: JobRecord) -> bool:
    if record.completed_s is not None:
        return False
    # Started more often than killed: it holds an allocation now.
    return len(record.executions) == len(record.killed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    allocated: FloatArray
    used: FloatArray
    reclaimed: FloatArray
    killed_gpu_h: float


def _held(simulation: Simulation, warm_up_s: float) -> _Held:
    """Integrate allocations and use over the window: fractions of capacity, and hours in cores, GiB and GPUs."""
    capacity = Cluster(simulation.machines).capacity.sum(axis=0)
    window_s = simulation.end_s - warm_up_s
    allocated, used, requested = (np.zeros(3) for _ in range(3))
    killed_gpu_s = 0.0
    for record in simulation.records:
        for execution in record.executions:
            held_s = min(execution.end_s, simulation.end_s) - max(execution.start_s, warm_up_s)
            if held_s <= 0.0:
                continue
            job = record.arrival.drawn.job
            units = np.array(demand_of(execution.allocated, job.instances).units) * job.instances
            allocated += units * held_s
            requested += np.array(demand_of(job.request, job.instances).units) * job.instances * held_s
            used += np.minimum(_drawn(record, execution) * np.array(UNITS) * job.instances, units) * held_s
            killed_gpu_s += float(units[2]) / UNITS[2] * held_s if execution.outcome.killed else 0.0
    over = np.maximum(capacity, 1) * max(window_s, 1e-9)
    return _Held(
        allocated=allocated / over,
        used=used / over,
        reclaimed=(requested - allocated) / np.array(UNITS) / SECONDS_PER_HOUR,
        killed_gpu_h=killed_gpu_s / SECONDS_PER_HOUR,
    )


def _drawn(record: JobRecord, execution: Execution) -> FloatArray:
    """Return what one instance draws on average: work per second slows with the stretch, memory stays."""
    measured, request = record.arrival.drawn.measured, record.arrival.drawn.job.request
    need = need_of(measured, request)
    mem_gib = measured.mem_avg_gib if math.isnan(request.mem_gib) else min(measured.mem_avg_gib, request.mem_gib)
    return np.array([need.cpu_cores / execution.outcome.stretch, mem_gib, need.gpus / execution.outcome.stretch])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _quantile(values: Sequence[float], level: float) -> float:
    return float(np.quantile(values, level)) if len(values) else math.nan

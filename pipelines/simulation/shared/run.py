"""Simulate arriving jobs on shared machines under one way of reserving; the entry point of this folder.

The state is created in `begin`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.shared.begin import state_of
from pipelines.simulation.shared.inputs import Load, Reserving, check_discipline
from pipelines.simulation.shared.loop import advance
from pipelines.simulation.shared.state import Log, Records
from pipelines.simulation.shared.variation import Variation
from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.errors import BadInput
from scheduler_core.gangs import rounded
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.types import FloatArray, IntArray

__all__ = ["SharedRun", "simulate_shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A finished simulation: its schedule, the kills, and the seconds each job lost to shortages of CPU and GPU.

    `kills` has the dtype `state.KILL`. `lost_s` has the shape (n, 2). Without `by_device`, GPUs were pooled: those
    of a machine are its device 0.
    """

    schedule: Schedule
    kills: Records
    lost_s: FloatArray
    by_device: bool

    @property
    def speed(self) -> FloatArray:
        """Return the mean speed of each job's runs until the end (n,), relative to a run without shortages."""
        schedule = self.schedule
        held_s = np.minimum(schedule.end_run_s, schedule.end_s) - schedule.start_s
        busy_s = np.bincount(schedule.job, weights=held_s, minlength=len(schedule.workload))
        return np.asarray(1.0 - self.lost_s.sum(axis=1) / np.maximum(busy_s, 1e-9), dtype=np.float64)


def simulate_shared(
    workload: Workload,
    load: Load,
    machines: Sequence[Machine],
    reserving: Reserving,
    *,
    variation: Variation | None = None,
    discipline: Discipline | None = None,
    horizon_s: float,
    seed: int,
) -> SharedRun:
    """Simulate until the horizon.

    What a job demands depends on the seed and its place among the arrivals, and not on how capacity is reserved. If
    GPUs are shared by devices, requests of more than one GPU are first rounded up to whole GPUs, and the schedule holds
    the rounded workload; a smaller granted amount is split evenly over the devices.
    """
    variation, discipline = variation or Variation(), discipline or Discipline()
    check_discipline(discipline)
    cluster = Cluster(machines, sharing_of(discipline.placement, discipline.sharing))
    if len(load.compute) != len(workload):
        raise BadInput(f"load: found {len(load.compute)} jobs, expected the {len(workload)} of the workload")
    if cluster.devices is not None:
        workload = _in_devices(workload)
    fits = np.array([cluster.could_host(_demand(workload, row)) for row in range(len(workload))], dtype=np.bool_)
    kept = np.flatnonzero(fits)
    state = state_of(workload, load.picked(kept), cluster, reserving, variation, discipline, horizon_s, seed, kept)
    advance(state)
    tally, jobs = state.queue.tally[0], state.jobs
    runs = state.log.runs[: int(tally["runs"])]
    finished_s, lost_s = np.full(len(workload), np.nan), np.zeros((len(workload), 2))
    done = runs["ending"] == Ending.COMPLETED
    runs["ending"][done & workload.fails[kept[runs["job"]]]] = Ending.FAILED
    finished_s[kept[runs["job"][done]]] = runs["end_s"][done]
    lost_s[kept] = jobs["lost_s"]
    kills = state.log.kills[: int(tally["kills"])].copy()
    kills["job"] = kept[kills["job"]]
    hosts, counts, offsets = _hosts(state.log, runs, int(tally["hosts"]), len(machines))
    schedule = Schedule(
        workload=workload,
        machines=tuple(machines),
        end_s=float(horizon_s if math.isfinite(horizon_s) else runs["end_s"].max(initial=0.0)),
        job=kept[runs["job"]],
        start_s=runs["start_s"].copy(),
        end_run_s=runs["end_s"].copy(),
        full=runs["full"].copy(),
        ending=runs["ending"].copy(),
        host_offsets=offsets,
        hosts=hosts,
        host_counts=counts,
        never_fits=~fits,
        finished_s=finished_s,
        stranded_gpu_s=math.nan,  # unknown
    )
    return SharedRun(schedule=schedule, kills=kills, lost_s=lost_s, by_device=cluster.devices is not None)


def _in_devices(workload: Workload) -> Workload:
    """Return the workload with every request of more than one GPU rounded up to whole GPUs."""
    request_units, granted_units = workload.request_units.copy(), workload.granted_units.copy()
    whole = granted_units[:, 2] == request_units[:, 2]
    request_units[:, 2] = rounded(request_units[:, 2])
    granted_units[whole, 2] = request_units[whole, 2]
    return replace(workload, request_units=request_units, granted_units=granted_units)


def _demand(workload: Workload, row: int) -> Demand:
    cpu, mem, gpu = workload.request_units[row].tolist()
    return Demand(units=(cpu, mem, gpu), instances=int(workload.instances[row]))


def _hosts(log: Log, runs: Records, hosts: int, machines: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return machines, instances on each, and offsets of runs, as in `Schedule`."""
    lengths = np.diff(np.append(runs["first"], hosts))
    run = np.repeat(np.arange(len(runs)), lengths)
    pairs, counts = np.unique(run * machines + log.machine[:hosts], return_counts=True)
    offsets = np.searchsorted(pairs // machines, np.arange(len(runs) + 1))
    return pairs % machines, counts.astype(np.int64), offsets.astype(np.int64)

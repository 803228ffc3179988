"""Simulate arriving jobs on shared machines under one way of reserving; the entry point of this folder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.shared.inputs import Load, Reserving, check_discipline
from pipelines.simulation.shared.loop import advance
from pipelines.simulation.shared.state import (
    DEVICE,
    INSTANCE,
    JOB,
    MACHINE,
    RUN,
    SAMPLES,
    TALLY,
    Log,
    Queue,
    Records,
    Rules,
    State,
)
from pipelines.simulation.shared.use import MINUTE_S
from pipelines.simulation.shared.variation import Variation, draw
from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.errors import BadInput
from scheduler_core.gangs import rounded
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import FloatArray, IntArray

__all__ = ["SharedRun", "simulate_shared", "state_of"]

COMPUTE: Final = [0, 2]
MEMORY: Final = [1, 2]
"""Columns of a request that bound compute (CPU, GPU), and memory (memory, GPU memory)."""

STARTS: Final = 4
"""The log has room for this many starts of each job on average; when it is full, no job is killed any more."""


def state_of(
    workload: Workload,
    load: Load,
    cluster: Cluster,
    reserving: Reserving,
    variation: Variation,
    discipline: Discipline,
    horizon_s: float,
    seed: int,
    kept: IntArray,
) -> State:
    """Return the state before the first arrival, of the jobs `kept`."""
    request = workload.request_units[kept].astype(np.float64)
    load = replace(
        load,
        compute=np.minimum(load.compute, request[:, COMPUTE]),
        memory=np.minimum(load.memory, request[:, MEMORY]),
    )
    jobs = _jobs(workload, load, variation, discipline, seed, kept)
    _size(jobs, workload.granted_units[kept], reserving, kept)
    instances, starts = int(jobs["instances"].sum()), STARTS * len(kept) + 64
    devices = _devices(cluster)
    most = devices.shape[1] if cluster.devices is not None else 1
    gang = int(jobs["instances"].max(initial=1))
    return State(
        rules=_rules(reserving, variation, horizon_s, seed, devices=cluster.devices is not None),
        policy=(reserving.policy or ReservePolicy()).limits(),
        jobs=jobs,
        instances=np.zeros(instances, dtype=INSTANCE),
        device=np.full((instances, most), -1, dtype=np.int64),
        samples=np.zeros(len(kept), dtype=SAMPLES),
        machines=_machines(cluster),
        devices=devices,
        queue=Queue(
            waiting=np.zeros(len(kept) + 1, dtype=np.int64),
            running=np.zeros(len(kept) + 1, dtype=np.int64),
            machine=np.zeros(gang, dtype=np.int64),
            picked=np.full((gang, most), -1, dtype=np.int64),
            tally=np.zeros(1, dtype=TALLY),
        ),
        log=Log(
            runs=np.zeros(starts, dtype=RUN),
            machine=np.zeros(gang * (starts - len(kept)) + instances, dtype=np.int64),
        ),
    )


def _rules(reserving: Reserving, variation: Variation, horizon_s: float, seed: int, *, devices: bool) -> Rules:
    policy = reserving.policy
    return Rules(
        seed=seed,
        horizon_s=float(horizon_s),
        devices=devices,
        reclaims=policy is not None,
        z=reserving.z,
        close_s=0.0 if policy is None else policy.close_s,
        slow_share=variation.slow_share,
        slow_keep=math.exp(-MINUTE_S / variation.slow_s),
        cpu_keep=math.exp(-MINUTE_S / variation.cpu_s),
        gpu_keep=math.exp(-MINUTE_S / variation.gpu_s),
        interference=variation.interference and devices,
        more_cpu=reserving.overcommit[0],
        more_memory=reserving.overcommit[1],
        more_gpu=reserving.overcommit[2],
    )


def _jobs(
    workload: Workload,
    load: Load,
    variation: Variation,
    discipline: Discipline,
    seed: int,
    kept: IntArray,
) -> Records:
    """Return the records of the jobs `kept`, without their sizes and reservations."""
    request = workload.request_units[kept].astype(np.float64)
    varied = draw(variation, load.compute, request[:, COMPUTE], workload.run_s[kept], load.language, seed)
    jobs = np.zeros(len(kept), dtype=JOB)
    for name in ("arrive_s", "run_s", "instances"):
        jobs[name] = getattr(workload, name)[kept]
    for name in ("sigma", "scale", "ramp_s", "ramp_level", "before_peak", "peak_at_s"):
        jobs[name] = getattr(varied, name)
    predicted_s = workload.predicted_s[kept]
    by_size = discipline.policy in ("sjf", "srtf")
    jobs["key"] = np.where(np.isnan(predicted_s), math.inf, predicted_s) if by_size else jobs["arrive_s"]
    jobs["first"] = np.cumsum(jobs["instances"]) - jobs["instances"]
    jobs["request"], jobs["peak"] = request, load.memory
    return jobs


def _size(jobs: Records, granted: IntArray, reserving: Reserving, kept: IntArray) -> None:
    """Set the capacity that each start needs, and its first reservation."""
    prior, z, request = jobs["prior"], reserving.z, jobs["request"]
    prior["mean"] = granted[:, COMPUTE]
    prior["memory"] = granted[:, MEMORY]
    if reserving.prior is not None:
        prior["mean"] = reserving.prior[kept][:, [0, 2]]
        prior["variance"] = reserving.prior[kept][:, [1, 3]] ** 2
    compute = np.minimum(prior["mean"] + z * np.sqrt(prior["variance"]), request[:, COMPUTE])
    jobs["sized"] = np.column_stack([compute[:, 0], prior["memory"][:, 0], compute[:, 1], prior["memory"][:, 1]])


def _machines(cluster: Cluster) -> Records:
    machines = np.zeros(len(cluster.machines), dtype=MACHINE)
    machines["capacity"] = cluster.capacity
    machines["largest"] = np.maximum(cluster.capacity.max(axis=0), 1)
    machines["closed_until_s"] = -math.inf
    return machines


def _devices(cluster: Cluster) -> Records:
    capacity = cluster.capacity[:, 2:] if cluster.devices is None else cluster.devices
    devices = np.zeros(capacity.shape, dtype=DEVICE)
    devices["capacity"] = capacity
    return devices


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A finished simulation: its schedule, and the seconds that each job (n,) lost to shortages of CPU and GPU."""

    schedule: Schedule
    lost_s: FloatArray

    @property
    def speed(self) -> FloatArray:
        """Return the mean speed of each job's runs until the end (n,), relative to a run without shortages."""
        schedule = self.schedule
        held_s = np.minimum(schedule.end_run_s, schedule.end_s) - schedule.start_s
        busy_s = np.bincount(schedule.job, weights=held_s, minlength=len(schedule.workload))
        return np.asarray(1.0 - self.lost_s / np.maximum(busy_s, 1e-9), dtype=np.float64)


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
    finished_s, lost_s = np.full(len(workload), np.nan), np.zeros(len(workload))
    done = runs["ending"] == Ending.COMPLETED
    runs["ending"][done & workload.fails[kept[runs["job"]]]] = Ending.FAILED
    finished_s[kept[runs["job"][done]]] = runs["end_s"][done]
    lost_s[kept] = jobs["lost_s"]
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
    )
    return SharedRun(schedule=schedule, lost_s=lost_s)


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

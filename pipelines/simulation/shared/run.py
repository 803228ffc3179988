"""Simulate arriving jobs on shared machines under one way of reserving; the entry point of this folder.

Called by `pipelines.simulation.paired_runs`, the studies and tests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.shared.loop import advance
from pipelines.simulation.shared.noise import MINUTE_S
from pipelines.simulation.shared.state import (
    DEVICE,
    INSTANCE,
    JOB,
    KILL,
    MACHINE,
    RUN,
    SAMPLES,
    Log,
    Queue,
    Records,
    Rules,
    State,
    tally_of,
)
from pipelines.simulation.shared.variation import Variation, draw
from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.devices import WHOLE, rounded
from scheduler_core.errors import BadInput
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Load", "Reserving", "SharedRun", "simulate_shared"]

COMPUTE: Final = [0, 2]
MEMORY: Final = [1, 2]
"""Columns of a request that bound compute (CPU, GPU), and memory (memory, GPU memory)."""

POLICIES: Final = ("fifo", "sjf", "srtf", "drf")
STARTS: Final = 4
"""The log has room for this many starts of each job on average, and the simulation stops killing when it is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The recorded use of n jobs, per instance: mean CPU and GPU compute, and peak memory and GPU memory.

    `compute` (n, 2) is in milli-cores and milli-GPUs. `memory` (n, 2) is in MiB, and in thousandths of one device's
    memory. `language` (n,) marks jobs that train language models, whose runs start slowly.
    """

    compute: FloatArray
    memory: FloatArray
    language: BoolArray

    def __post_init__(self) -> None:
        count = len(self.language)
        for name in ("compute", "memory"):
            values = getattr(self, name)
            if np.shape(values) != (count, 2) or not (np.isfinite(values).all() and (values >= 0.0).all()):
                raise BadInput(
                    f"load: found {name} of shape {np.shape(values)}, or with values below 0, infinite or NaN; "
                    f"expected the shape {(count, 2)} and finite amounts of at least 0"
                )

    def picked(self, rows: IntArray) -> "Load":
        """Return the use of these jobs."""
        return Load(compute=self.compute[rows], memory=self.memory[rows], language=self.language[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserving:
    """How capacity is reserved: by fixed sizes, or by what each running job was measured to use.

    Attributes
    ----------
    policy
        How running jobs are measured; None keeps the sizes `Workload.granted_units` of the start.
    peak_margin
        If above 0, the largest measured use times this margin is reserved, instead of mean and spread.
    overcommit
        Factors of the capacity of CPU, memory and GPUs that the scheduler sees.
    prior
        Reserved mean and standard deviation of CPU, and of GPU compute, of a job that starts (n, 4), per instance, in
        the units of `Load.compute`; None reserves the granted units.
    fixed
        Whether the first reservations stay, with memory at its recorded peak: an oracle.
    """

    policy: ReservePolicy | None = None
    peak_margin: float = 0.0
    overcommit: tuple[float, float, float] = (1.0, 1.0, 1.0)
    prior: FloatArray | None = field(default=None, repr=False, compare=False)
    fixed: bool = False

    @property
    def z(self) -> float:
        """Return the number of standard deviations that stay free; 0 if reservations have no spread."""
        return self.policy.z if self.policy is not None and self.peak_margin == 0.0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A finished simulation: its schedule, the kills, and the seconds each job lost to shortages of CPU and GPU.

    `kills` has the dtype `state.KILL`. `lost_s` has the shape (n, 2).
    """

    schedule: Schedule
    kills: Records
    lost_s: FloatArray


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

    Raises
    ------
    BadInput
        If the discipline has what this engine lacks: a policy other than FIFO, SJF, SRTF (without preemption) and
        DRF, a placement other than best fit, backfill, limits of overtaking, aging or GPU types; or the load is of
        another number of jobs.
    """
    variation, discipline = variation or Variation(), discipline or Discipline()
    _check(discipline)
    cluster = Cluster(machines, sharing_of(discipline.placement, discipline.sharing))
    if len(load.compute) != len(workload):
        raise BadInput(f"load: found {len(load.compute)} jobs, expected the {len(workload)} of the workload")
    if cluster.devices is not None:
        workload = _in_devices(workload)
    fits = np.array([cluster.could_host(_demand(workload, row)) for row in range(len(workload))], dtype=np.bool_)
    kept = np.flatnonzero(fits)
    state = _state(workload, load.picked(kept), cluster, reserving, variation, discipline, horizon_s, seed, kept)
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
        stranded_gpu_s=0.0,
    )
    return SharedRun(schedule=schedule, kills=kills, lost_s=lost_s)


def _check(discipline: Discipline) -> None:
    """Raise BadInput for a discipline that only the other engines support."""
    lacking = {
        f"policy {discipline.policy}": discipline.policy not in POLICIES,
        f"placement {discipline.placement}": discipline.placement != "best_fit",
        "preemption": bool(discipline.preempt),
        "backfill": discipline.backfill != "none",
        "limits of overtaking": discipline.overtakes is not None,
        "aging": discipline.aging != 0.0,
        "GPU types": discipline.match_gpu_type,
    }
    if any(lacking.values()):
        names = ", ".join(name for name, lacks in lacking.items() if lacks)
        raise BadInput(
            f"shared machines: found {names}; expected one of {', '.join(POLICIES)} with best_fit, and neither "
            "preemption, backfill, limits of overtaking, aging nor GPU types"
        )


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


def _state(
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
    jobs = _jobs(workload, load, variation, discipline, seed, kept)
    _size(jobs, workload.granted_units[kept], reserving, kept)
    instances, starts = int(jobs["instances"].sum()), STARTS * len(kept) + 64
    devices = _devices(cluster)
    most = devices.shape[1] if cluster.devices is not None else 1
    gang = int(jobs["instances"].max(initial=1))
    return State(
        rules=_rules(reserving, variation, discipline, horizon_s, seed, devices=cluster.devices is not None),
        policy=(reserving.policy or ReservePolicy()).limits(),
        jobs=jobs,
        instances=np.zeros(instances, dtype=INSTANCE),
        device=np.full((instances, most), -1, dtype=np.int64),
        samples=np.zeros((len(kept), int(jobs["late"].max(initial=0)) + 2), dtype=SAMPLES),
        machines=_machines(cluster),
        devices=devices,
        queue=Queue(
            waiting=np.zeros(len(kept) + 1, dtype=np.int64),
            running=np.zeros(len(kept) + 1, dtype=np.int64),
            held=_held(cluster, int(jobs["user"].max(initial=0)) + 1),
            machine=np.zeros(gang, dtype=np.int64),
            picked=np.full((gang, most), -1, dtype=np.int64),
            tally=tally_of(),
        ),
        log=Log(
            runs=np.zeros(starts, dtype=RUN),
            machine=np.zeros(gang * (starts - len(kept)) + instances, dtype=np.int64),
            kills=np.zeros(starts - len(kept), dtype=KILL),
        ),
    )


def _rules(
    reserving: Reserving, variation: Variation, discipline: Discipline, horizon_s: float, seed: int, *, devices: bool
) -> Rules:
    policy = reserving.policy
    return Rules(
        seed=seed,
        horizon_s=float(horizon_s),
        drf=discipline.policy == "drf",
        devices=devices,
        reclaims=policy is not None,
        peak_margin=reserving.peak_margin,
        z=reserving.z,
        close_s=0.0 if policy is None else policy.close_s,
        slow_share=variation.slow_share,
        slow_keep=math.exp(-MINUTE_S / variation.slow_s),
        cpu_keep=math.exp(-MINUTE_S / variation.cpu_s),
        gpu_keep=math.exp(-MINUTE_S / variation.gpu_s),
        interference=variation.interference,
        lost=variation.lost,
        more_cpu=reserving.overcommit[0],
        more_memory=reserving.overcommit[1],
        more_gpu=reserving.overcommit[2],
    )


def _jobs(
    workload: Workload, load: Load, variation: Variation, discipline: Discipline, seed: int, kept: IntArray
) -> Records:
    """Return the records of the jobs `kept`, without their sizes and reservations."""
    request = workload.request_units[kept].astype(np.float64)
    limit, peak = request[:, COMPUTE], np.minimum(load.memory, request[:, MEMORY])
    if variation.beyond_request:
        limit = np.where(limit > 0.0, np.maximum(limit, load.compute), 0.0)
        peak = load.memory.copy()
        held = WHOLE * np.ceil(request[:, 2] / WHOLE)  # an instance has no more than its devices
        limit[:, 1], peak[:, 1] = np.minimum(limit[:, 1], held), np.minimum(peak[:, 1], held)
    compute = np.minimum(load.compute, limit)
    varied = draw(variation, compute, limit, workload.run_s[kept], load.language, seed)
    jobs = np.zeros(len(kept), dtype=JOB)
    for name in ("arrive_s", "run_s", "instances", "user"):
        jobs[name] = getattr(workload, name)[kept]
    for name in ("sigma", "scale", "ramp_s", "ramp_level", "before_peak", "peak_at_s"):
        jobs[name] = getattr(varied, name)
    predicted_s = workload.predicted_s[kept]
    by_size = discipline.policy in ("sjf", "srtf")
    jobs["key"] = np.where(np.isnan(predicted_s), math.inf, predicted_s) if by_size else jobs["arrive_s"]
    jobs["first"] = np.cumsum(jobs["instances"]) - jobs["instances"]
    jobs["request"], jobs["limit"], jobs["peak"] = request, limit, peak
    jobs["late"] = np.ceil(varied.late_min * 60.0 / MINUTE_S)
    jobs["pressed_s"] = -math.inf
    return jobs


def _size(jobs: Records, granted: IntArray, reserving: Reserving, kept: IntArray) -> None:
    """Set what each start must find free, and its first reservation."""
    prior, z, request = jobs["prior"], reserving.z, jobs["request"]
    prior["mean"] = granted[:, COMPUTE]
    prior["memory"] = granted[:, MEMORY]
    if reserving.prior is not None:
        prior["mean"] = reserving.prior[kept][:, [0, 2]]
        prior["variance"] = reserving.prior[kept][:, [1, 3]] ** 2
    if reserving.fixed:
        prior["memory"] = jobs["peak"]
    compute = np.minimum(prior["mean"] + z * np.sqrt(prior["variance"]), request[:, COMPUTE])
    jobs["fixed"] = reserving.fixed
    jobs["sized"] = np.column_stack([compute[:, 0], prior["memory"][:, 0], compute[:, 1], prior["memory"][:, 1]])


def _held(cluster: Cluster, users: int) -> FloatArray:
    """Return `Queue.held` of a cluster without jobs."""
    held = np.zeros((users + 1, 3))
    held[-1] = np.maximum(cluster.capacity.sum(axis=0), 1)
    return held


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

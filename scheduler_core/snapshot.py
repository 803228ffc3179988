"""A cluster at one moment: its machines, running jobs and queue, and the rules by which jobs start.

Only data; `scene` checks what belongs together.
"""

import math
from dataclasses import dataclass, field

from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from scheduler_core.types import Request

__all__ = ["MachineState", "QueuedJob", "RunningJob", "Snapshot", "Spot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """A machine, and the memory of each of its GPUs (GiB, NaN if unknown).

    A machine that is `closed` takes no new jobs; its running jobs go on.
    """

    machine: Machine
    device_mem_gib: float = math.nan
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A machine with some instances of a gang. `devices` are indices of the GPUs held: empty if none or unknown."""

    machine: str
    instances: int = 1
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A running job: its request per instance, where it runs, and in how many seconds it should end (inf: unknown)."""

    job_id: str
    request: Request
    spots: tuple[Spot, ...]
    user: str | None = None
    ends_in_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A waiting job: its request per instance, its constraints, and what queue policies read.

    `gpu_type` may list alternatives ("T4|P100"). `machines` are the only machines that it may use; empty: any.
    `device_mem_gib` is the least memory that each GPU must have. `run_time_s` is the expected run time, NaN if unknown.
    """

    job_id: str
    request: Request
    instances: int = 1
    gpu_type: str | None = None
    machines: tuple[str, ...] = ()
    device_mem_gib: float = 0.0
    user: str | None = None
    priority: float = 0.0
    waited_s: float = 0.0
    run_time_s: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The machines, the running jobs and the queue of a cluster, and the rules by which jobs start.

    Preemption is never used. GPUs are shared by device if the rules or the placement require it, or if the rules leave
    it open and any GPU is named.
    """

    machines: tuple[MachineState, ...]
    running: tuple[RunningJob, ...] = ()
    jobs: tuple[QueuedJob, ...] = ()
    rules: Discipline = field(default_factory=Discipline)

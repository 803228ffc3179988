"""Data of a simulation of shared machines, as arrays of records that the kernels of this folder change.

Resources are in the units of `scheduler_core.cluster.UNITS` (milli-cores, MiB, milli-GPUs), as floats. Memory of GPUs
is counted in thousandths of one device's memory. Pooled GPUs are one device as large as all GPUs of a machine. Fields
with two values hold CPU and GPU compute, or memory and device memory. Created in `run`.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from scheduler_core.kernels.reserving import Limits
from scheduler_core.types import IntArray

__all__ = [
    "DEVICE",
    "INSTANCE",
    "JOB",
    "MACHINE",
    "RUN",
    "SAMPLES",
    "TALLY",
    "Log",
    "Queue",
    "Records",
    "Rules",
    "State",
]

Records = Any  # an array with one of the dtypes below; mypy cannot check its fields

RESERVATION: Final = [
    ("mean", "f8", (2,)),
    ("variance", "f8", (2,)),
    ("memory", "f8", (2,)),
]
"""What is reserved for one instance."""

JOB: Final = np.dtype(
    [
        ("arrive_s", "f8"),
        ("run_s", "f8"),
        ("key", "f8"),  # constant part of the queue key
        ("instances", "i8"),
        ("first", "i8"),  # index of the job's first instance
        ("request", "f8", (3,)),  # CPU, memory, GPU of one instance
        ("prior", RESERVATION),  # reservation of the first start
        ("scale", "f8", (2,)),
        ("sigma", "f8", (2,)),  # standard deviation of the logarithm of demand
        ("ramp_s", "f8"),
        ("ramp_level", "f8"),
        ("peak", "f8", (2,)),  # memory and device memory from `peak_at_s` on
        ("before_peak", "f8"),  # share of the peak that is in use before
        ("peak_at_s", "f8"),  # work done when the peak begins
        # From here on: state of the run.
        ("sized", "f8", (4,)),  # CPU, memory, GPU, device memory that must be free for one instance
        ("left_s", "f8"),  # work left, in seconds at full speed
        ("speed", "f8"),
        ("age", "i8"),  # minutes begun since the start
        ("slow", "f8", (2,)),  # slow part of the noise
        ("lost_s", "f8"),  # time lost to shortages
        ("reserved", RESERVATION),
        ("reason", "i8"),  # code of `scheduler_core.kernels.reserving`
        ("run", "i8"),  # index of the run in the log
        ("full", "?"),  # whether it keeps its request, because it was killed
    ],
    align=True,
)

INSTANCE: Final = np.dtype(
    [
        ("machine", "i8"),
        ("devices", "i8"),  # number of devices
        ("fast", "f8", (2,)),  # fast part of the noise
        ("need", "f8", (2,)),  # compute demanded now
        ("share", "f8", (2,)),  # compute received now
        ("used", "f8", (2,)),  # unit-seconds used since the last sample
    ],
    align=True,
)

SAMPLES: Final = np.dtype(
    [
        ("count", "f8"),
        ("mean", "f8", (2,)),
        ("squares", "f8", (2,)),  # sum of squared deviations from the mean
        ("recent", "f8", (2,)),
        ("memory", "f8", (2,)),  # largest sample
        ("pressed_s", "f8", (2,)),  # time of the newest sample that pressed on the reservation
    ],
    align=True,
)
"""Running statistics of a job's samples."""

MACHINE: Final = np.dtype(
    [
        ("capacity", "f8", (3,)),
        ("largest", "f8", (3,)),  # largest capacity of any machine
        ("free", "f8", (2,)),  # CPU and memory that may be allocated
        ("closed_until_s", "f8"),
        ("mean", "f8"),  # sums over instances: reserved CPU, its variance, memory reserved or in use
        ("variance", "f8"),
        ("memory", "f8"),
        ("demand", "f8"),  # CPU
        ("level", "f8"),  # CPU per unit of weight for instances that demand more
        ("freeness", "f8"),
        ("passed", "?"),
    ],
    align=True,
)

DEVICE: Final = np.dtype(
    [
        ("capacity", "f8"),
        ("free", "f8", (2,)),  # compute and memory that may be allocated
        ("mean", "f8"),
        ("variance", "f8"),
        ("memory", "f8"),
        ("demand", "f8"),
        ("level", "f8"),
    ],
    align=True,
)

RUN: Final = np.dtype(
    [("job", "i8"), ("start_s", "f8"), ("end_s", "f8"), ("first", "i8"), ("full", "?"), ("ending", "i1")], align=True
)

TALLY: Final = np.dtype(
    [("waiting", "i8"), ("running", "i8"), ("arrived", "i8"), ("runs", "i8"), ("hosts", "i8"), ("kills", "i8")]
)


class Rules(NamedTuple):
    """Settings of one simulation; further fields of `reserve.ReservePolicy` are in `State.policy`."""

    seed: int
    horizon_s: float
    devices: bool
    reclaims: bool
    z: float
    close_s: float
    slow_share: float
    slow_keep: float  # autocorrelation over one minute of the slow part of the noise
    cpu_keep: float
    gpu_keep: float
    interference: bool
    more_cpu: float  # factors of the capacity that the scheduler sees
    more_memory: float
    more_gpu: float


class Queue(NamedTuple):
    """Waiting jobs in queue order, running jobs, and a gang being placed."""

    waiting: IntArray
    running: IntArray
    machine: IntArray  # (largest gang,) machine of each instance of the gang
    picked: IntArray  # (largest gang, devices) its devices, -1 for none
    tally: Records


class Log(NamedTuple):
    """Runs in the order of their starts, and the machines of their instances."""

    runs: Records
    machine: IntArray


class State(NamedTuple):
    """All data of a simulation; `device` (instances, devices) holds the devices of each running instance."""

    rules: Rules
    policy: Limits
    jobs: Records
    instances: Records
    device: IntArray
    samples: Records
    machines: Records
    devices: Records
    queue: Queue
    log: Log

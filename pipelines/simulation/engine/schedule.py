"""What a simulation did, as columns: every run of every job, where it ran, and how it ended.

Nothing is simulated or measured here. Made by the event loops of `simulator`; read by `metrics`, `series` and `log`.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine
from scheduler_core.types import BoolArray, FloatArray, IntArray

EndingArray = npt.NDArray[np.int8]


class Ending(IntEnum):
    """How a run ended; `RUNNING` runs were cut by the end of the simulation."""

    RUNNING = 0
    COMPLETED = 1
    FAILED = 2
    KILLED = 3
    PREEMPTED = 4
    INTERRUPTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One finished simulation; runs (k) are in the order of their starts.

    Attributes
    ----------
    machines
        What it ran on; `hosts` are indices into it.
    end_s
        The horizon, or the last event's time where the horizon is infinite.
    job
        The run's job, a row of `workload`.
    start_s, end_run_s
        When the run began, and when it ended; for `RUNNING` ones when it would have (beyond `end_s`).
    full
        The run was given the job's full request (after a kill), not `granted_units`.
    ending
        `Ending` codes, int8.
    host_offsets, hosts, host_counts
        Run i held `host_counts[j]` instances on machine `hosts[j]`, for j in host_offsets[i] .. host_offsets[i + 1].
    host_devices
        Milli-GPUs that each entry of `hosts` took of each GPU of its machine (len(hosts), most GPUs of any machine);
        None where GPUs are pooled.
    never_fits
        Jobs (n) whose full request exceeds the empty cluster; they never waited.
    finished_s
        When a job (n) completed or failed; NaN where it had not by the end.
    stranded_gpu_s
        GPU-seconds that stood free while some job waited that asked for no more GPUs than were free in all: lost to
        fragmentation, to other resources, or to the queue's rules.
    """

    workload: Workload
    machines: tuple[Machine, ...]
    end_s: float
    job: IntArray
    start_s: FloatArray
    end_run_s: FloatArray
    full: BoolArray
    ending: EndingArray
    host_offsets: IntArray
    hosts: IntArray
    host_counts: IntArray
    never_fits: BoolArray
    finished_s: FloatArray
    stranded_gpu_s: float
    host_devices: IntArray | None = None

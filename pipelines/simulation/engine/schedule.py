"""The schedule of a finished simulation, as columns: every run of every job, its machines, and how the run ended.

Nothing is simulated or measured here.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Machine
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Ending", "Schedule"]

EndingArray = npt.NDArray[np.int8]


class Ending(IntEnum):
    """How a run ended; a run still `RUNNING` had not ended when the simulation did."""

    RUNNING = 0
    COMPLETED = 1
    FAILED = 2
    KILLED = 3
    PREEMPTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One finished simulation of n jobs; its k runs are in the order of their starts.

    Attributes
    ----------
    machines
        The machines of the cluster; `hosts` holds indices into this tuple.
    end_s
        End of the simulation: the horizon, or the time of the last event if the horizon is infinite.
    job
        Job of each run: a row of `workload`.
    start_s, end_run_s
        Start and end of each run. A `RUNNING` run has its planned end, which is after `end_s`.
    full
        Whether the run held the job's full request, as after a kill, instead of `granted_units`.
    ending
        Code of `Ending` of each run, int8.
    host_offsets, hosts, host_counts
        Run i held `host_counts[j]` instances on machine `hosts[j]`, for j in host_offsets[i] .. host_offsets[i + 1].
    host_devices
        Milli-GPUs that each entry of `hosts` took from each GPU of its machine; shape (len(hosts), largest number of
        GPUs of a machine). None if GPUs are pooled.
    never_fits
        Whether the full request of each job (n,) exceeds the empty cluster. Such jobs never enter the queue.
    finished_s
        Time at which each job (n,) completed or failed; NaN if it did neither before the end.
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
    host_devices: IntArray | None = None

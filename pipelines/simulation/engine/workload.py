"""What a simulation is asked to run, as columns: one row per arrival, everything the event loops need and no more.

Advice and truth are settled before: what a job is given at first and how long it then runs are columns like any other.
Made by `pipelines`; run by `simulator`.
"""

from dataclasses import dataclass, fields

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Arrivals in the order of their times (n); the row's number is the job's serial, which settles ties.

    Attributes
    ----------
    arrive_s
        Moment of the simulation, which starts at 0 s, ascending.
    request_units, granted_units
        (n, 3) int64 per instance in the units of `cluster.UNITS`: the full request, and what the first start is given,
        no more than that.
        After a kill a job is given its full request.
    instances
        Pieces of the gang, at least 1; all start and end together.
    gpu_type
        Code into `gpu_types`, whose names may list alternatives ("V100M16|V100M32"), or `ANY_GPU_TYPE`.
    user
        Code of the user, 0 or more; whose dominant share DRF looks at.
    priority
        Larger goes first under `priority`.
    run_s
        Run time at the full request.
    granted_run_s
        How long the first start holds what it is given, stretch and all; where `dies`, it is killed then.
    dies
        The first start ends in a kill (too little memory); the job runs again at its full request.
    fails
        The job's own end is a failure (of the recorded job): it leaves, and is not completed.
    predicted_s
        Predicted run time (p50) as policies and backfill see it; NaN where nothing is known.
    """

    arrive_s: FloatArray
    request_units: IntArray
    granted_units: IntArray
    instances: IntArray
    gpu_type: IntArray
    user: IntArray
    priority: FloatArray
    run_s: FloatArray
    granted_run_s: FloatArray
    dies: BoolArray
    fails: BoolArray
    predicted_s: FloatArray
    gpu_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.arrive_s)
        for each in fields(self):
            column = getattr(self, each.name)
            shape = (count, len(RESOURCES)) if each.name.endswith("_units") else (count,)
            if each.name != "gpu_types" and np.shape(column) != shape:
                raise BadInput(f"workload: found {each.name} of shape {np.shape(column)}, expected {shape}")
        rules = {
            "arrive_s": np.isfinite(self.arrive_s) & (np.diff(self.arrive_s, prepend=-np.inf) >= 0.0),
            "request_units": (self.request_units >= 0).all(axis=1),
            "granted_units": ((self.granted_units >= 0) & (self.granted_units <= self.request_units)).all(axis=1),
            "instances": self.instances >= 1,
            "gpu_type": (self.gpu_type >= ANY_GPU_TYPE) & (self.gpu_type < len(self.gpu_types)),
            "user": self.user >= 0,
            "priority": np.isfinite(self.priority),
            "run_s": self.run_s > 0.0,
            "granted_run_s": self.granted_run_s > 0.0,
            "predicted_s": np.isnan(self.predicted_s) | (self.predicted_s >= 0.0),
        }
        for name, holds in rules.items():
            if not holds.all():
                row = int(np.argmin(holds))
                found = np.asarray(getattr(self, name))[row]
                raise BadInput(f"workload: found {name} = {found} in row {row}; see Workload for what it may be")

    def __len__(self) -> int:
        return len(self.arrive_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """When machines are away, in the order of `down_s`: `machine` is an index, `up_s` may be infinite.

    A gang with an instance on a machine that goes down loses the run it was in, and waits again in its old place.
    """

    machine: IntArray
    down_s: FloatArray
    up_s: FloatArray

    def __post_init__(self) -> None:
        holds = (self.machine >= 0) & (self.up_s > self.down_s) & (np.diff(self.down_s, prepend=0.0) >= 0.0)
        if not holds.all():
            row = int(np.argmin(holds))
            raise BadInput(
                f"outages: found machine {self.machine[row]} down at {self.down_s[row]} s, up at {self.up_s[row]} s in "
                f"row {row}; expected an index, an end after the begin, and ascending begins"
            )


NO_OUTAGES = Outages(
    machine=np.empty(0, dtype=np.int64), down_s=np.empty(0, dtype=np.float64), up_s=np.empty(0, dtype=np.float64)
)

"""Gangs: their demands and allocations in integer units, and the records of waiting and running jobs.

Integer units make allocating and releasing exact. The records hold no true run times, which only a simulator knows.
Used by every module here that places, starts or stops gangs; `cluster` re-exports the demands.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler_core.devices import Taken, shape
from scheduler_core.errors import BadInput
from scheduler_core.types import Recommendation, Request

__all__ = ["ANY_GPU_TYPE", "Demand", "Running", "Waiting"]

MILLI: Final = 1000
MIB_PER_GIB: Final = 1024
UNITS: Final = (MILLI, MIB_PER_GIB, MILLI)
"""Number of integer units in one core, one GiB and one GPU: milli-cores, MiB and milli-GPUs."""

GPUS: Final = 2
"""Index of GPUs in `UNITS`."""

ALTERNATIVES: Final = "|"
"""Separator between alternative GPU types in one text."""

UNIT_SLACK: Final = 1e-6
"""Tolerance in units for floating-point noise when amounts are rounded to whole units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Resources that a gang requests: units per instance (milli-cores, MiB, milli-GPUs), and number of instances.

    `gpu_type` restricts the gang to machines of that type, or of several ("V100M16|V100M32"); None allows any machine.
    """

    units: tuple[int, int, int]
    instances: int
    gpu_type: str | None = None

    @property
    def milli_gpus(self) -> int:
        """Return the whole gang's milli-GPUs."""
        return self.units[2] * self.instances


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The machines and devices that a gang takes; `counts` holds pairs (machine index, number of instances).

    `devices` lists (machine, device, milli-GPUs) for every device of every instance; it is empty when GPUs are pooled.
    """

    demand: Demand
    counts: tuple[tuple[int, int], ...]
    devices: Taken = ()


def demand_of(request: Request, instances: int, gpu_type: str | None = None) -> Demand:
    """Convert a request to integer units, rounded up; an unknown amount (NaN) becomes 0.

    Raises
    ------
    BadInput
        If an amount is not a number, negative or infinite, or `instances` is below 1.

    >>> demand_of(Request(cpu_cores=0.55 * 6, mem_gib=29.3, gpus=0.25), 4).units
    (3300, 30004, 250)
    """
    if not (isinstance(instances, int | np.integer) and instances >= 1):
        raise BadInput(f"gang: found {instances!r} instances, expected at least 1")
    cpu, mem, gpu = (_rounded_up(value, unit) for value, unit in zip(request.row(), UNITS, strict=True))
    return Demand(units=(cpu, mem, gpu), instances=instances, gpu_type=gpu_type)


def in_devices(demand: Demand) -> Demand:
    """Return the demand with a request of more than one GPU rounded up to whole GPUs, as devices require.

    >>> in_devices(Demand(units=(0, 0, 1500), instances=2)).units
    (0, 0, 2000)
    """
    cpu, mem, gpu = demand.units
    count, milli = shape(gpu)
    return demand if count * milli == gpu else replace(demand, units=(cpu, mem, count * milli))


def _rounded_up(value: float, unit: int) -> int:
    try:
        if math.isnan(value):
            return 0
    except TypeError:
        raise BadInput(f"request: found {value!r}, expected a number, or NaN for an unknown amount") from None
    if value < 0.0 or math.isinf(value):
        raise BadInput(f"request: found {value}, expected a finite amount of at least 0")
    return math.ceil(value * unit - UNIT_SLACK)


ANY_GPU_TYPE = -1
"""Code for gangs that allow any GPU type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in the queue, with the fields that queue policies read.

    - `serial`: number of the job in order of arrival; it breaks ties.
    - `arrived_s`: time of arrival, which a job keeps when it returns to the queue.
    - `request`, `granted`: the full request, and the (possibly shrunk) demand of the first start.
    - `full`: whether the next start has the full request, because the job was killed for exceeding its grant.
    - `predicted_s`, `predicted_p90_s`: predicted run time (p50 and p90) of the whole job; NaN if unknown.
    - `attained_s`: run time in earlier starts, without lost work and without the time of restarts.
    - `owed_s`: extra run time of the next start, because a preempted job must be restored from its checkpoint. For a
      running job (`having_run`), what is still to be paid, less what a restart would cost if it were preempted now.
    - `user`: the submitting user, whose dominant share orders jobs under the policy `drf`.
    - `priority`: the priority, by which the policy `priority` orders jobs, larger first.
    - `advice`: the recommendation of Algorithm 1, None if it was not called.
    """

    serial: int
    arrived_s: float
    request: Demand
    granted: Demand
    full: bool = False
    predicted_s: float = math.nan
    predicted_p90_s: float = math.nan
    attained_s: float = 0.0
    owed_s: float = 0.0
    user: Hashable = None
    priority: float = 0.0
    advice: Recommendation | None = None

    @property
    def demand(self) -> Demand:
        """Return the demand of the next start."""
        return self.request if self.full else self.granted

    @property
    def remaining_s(self) -> float:
        """Return the predicted run time that remains, at least 0; inf without a prediction."""
        return math.inf if math.isnan(self.predicted_s) else max(self.predicted_s - self.attained_s, 0.0)

    @property
    def expected_s(self) -> float:
        """Return the predicted duration of the next start; inf without a prediction."""
        return self.remaining_s + self.owed_s

    def killed(self) -> "Waiting":
        """Return the job after a kill: its work is lost, and it next starts with its full request."""
        return replace(self, full=True, attained_s=0.0, owed_s=0.0)

    def interrupted(self) -> "Waiting":
        """Return the job after its machine went down: its work is lost."""
        return replace(self, attained_s=0.0, owed_s=0.0)

    def preempted(self, ran_s: float, restart_cost_s: float) -> "Waiting":
        """Return the job after a preemption: its work is kept, and its next start takes `restart_cost_s` longer."""
        return replace(self, attained_s=self.attained_s + self.progress_s(ran_s), owed_s=restart_cost_s)

    def having_run(self, ran_s: float, restart_cost_s: float = 0.0) -> "Waiting":
        """Return a running job after `ran_s`, to compare its queue key with those of waiting jobs."""
        owed_s = max(self.owed_s - ran_s, 0.0) - restart_cost_s
        return replace(self, attained_s=self.attained_s + self.progress_s(ran_s), owed_s=owed_s)

    def progress_s(self, ran_s: float) -> float:
        """Return the progress in `ran_s` since the start: what a preemption before it cost is no progress."""
        return max(ran_s - self.owed_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running job: its record at the start, its allocation, and the time of the start."""

    waiting: Waiting
    allocation: Allocation
    start_s: float

    @property
    def expected_end_s(self) -> float:
        """Return the predicted time of the end; inf without a prediction."""
        return self.start_s + self.waiting.expected_s

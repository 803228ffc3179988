"""Gangs: demands and allocations in integer units, and jobs that wait or run, with the fields that policies read.

Integer units make allocating and releasing exact. True run times are not here: only the caller of the rounds has them.
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
"""Integer units per core, GiB and GPU: milli-cores, MiB, milli-GPUs."""

GPUS: Final = 2
"""Index of GPUs in `UNITS`."""

ALTERNATIVES: Final = "|"
"""Separator between alternative GPU types."""

UNIT_SLACK: Final = 1e-6
"""A product that exceeds a whole number by less than this part of a unit counts as that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A gang in integer units: what each instance takes (milli-cores, MiB, milli-GPUs), and the number of instances.

    `gpu_type` restricts it to machines of that type, or of one of several ("V100M16|V100M32"); None allows any.
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
    """The machines of a gang: `counts` pairs a machine's index with the number of instances there.

    `devices` are the GPUs it takes, (machine, device, milli-GPUs) of every device of every instance; empty when pooled.
    """

    demand: Demand
    counts: tuple[tuple[int, int], ...]
    devices: Taken = ()


def demand_of(request: Request, instances: int, gpu_type: str | None = None) -> Demand:
    """Round a request up to integer units; a resource the trace lacks (NaN) takes nothing.

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
    """Return a demand as taken where GPUs are shared by device: rounded up to whole GPUs above one.

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
"""Code of a gang that allows any GPU type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in the queue, with the fields that policies read.

    Attributes
    ----------
    serial
        Number in order of arrival, which breaks ties.
    arrived_s
        Time of arrival; a job that returns to the queue keeps it, and so its position.
    request, granted
        The full request, and the demand of the first start; `full`: the job was killed for using more than granted and
        gets its full request from now on.
    predicted_s
        Predicted run time (p50) of the whole job; NaN if unknown.
    attained_s
        Run time so far, without lost work.
    owed_s
        Extra run time of the next start after a preemption.
    user, priority
        The user whose dominant share `drf` reads; the value that `priority` orders by, larger first.
    advice
        The recommendation of Algorithm 1, if it was called.
    """

    serial: int
    arrived_s: float
    request: Demand
    granted: Demand
    full: bool = False
    predicted_s: float = math.nan
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
        """Return the remaining predicted run time, at least 0; inf without a prediction."""
        return math.inf if math.isnan(self.predicted_s) else max(self.predicted_s - self.attained_s, 0.0)

    @property
    def expected_s(self) -> float:
        """Return the predicted duration of the next start; inf without a prediction."""
        return self.remaining_s + self.owed_s

    def killed(self) -> "Waiting":
        """Return the job after a kill: its work is lost, and it gets its full request."""
        return replace(self, full=True, attained_s=0.0, owed_s=0.0)

    def interrupted(self) -> "Waiting":
        """Return the job after its machine went down: its work is lost."""
        return replace(self, attained_s=0.0, owed_s=0.0)

    def preempted(self, ran_s: float, checkpoint_s: float) -> "Waiting":
        """Return the job after a preemption: its work is kept, at the cost of a checkpoint."""
        return replace(self, attained_s=self.attained_s + ran_s, owed_s=checkpoint_s)

    def having_run(self, ran_s: float) -> "Waiting":
        """Return a running job with its run time so far, to compare with waiting jobs."""
        return replace(self, attained_s=self.attained_s + ran_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One run: the job at its start, its allocation, and the time of its start."""

    waiting: Waiting
    allocation: Allocation
    start_s: float

    @property
    def expected_end_s(self) -> float:
        """Return the predicted end; inf without a prediction."""
        return self.start_s + self.waiting.expected_s

"""Machines and their free capacity, in integer milli-units, so that giving back is exact.

Which machine is taken is decided in `placement`; a machine's GPUs are counted together, not device by device, so two
instances of 0.6 GPU fit a machine with 1.2 GPUs free whichever devices those are.
Called by `placement`, `rounds` and `simulator`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.types import BoolArray, IntArray, Request

MILLI: Final = 1000
MIB_PER_GIB: Final = 1024
UNITS: Final = (MILLI, MIB_PER_GIB, MILLI)
"""Integer units per core, GiB and GPU: milli-cores, MiB, milli-GPUs."""

UNIT_SLACK: Final = 1e-6
"""Part of a unit that a product may exceed a whole number by and still count as that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine's capacity."""

    name: str
    cpu_cores: float
    mem_gib: float
    gpus: int
    gpu_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A gang in integer units: what each instance takes (milli-cores, MiB, milli-GPUs), and how many there are.

    `gpu_type` restricts the machines to those of that type; None takes any.
    """

    units: tuple[int, int, int]
    instances: int
    gpu_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Where a gang runs: `counts` pairs a machine's index with the instances it hosts."""

    demand: Demand
    counts: tuple[tuple[int, int], ...]


def demand_of(request: Request, instances: int, gpu_type: str | None = None) -> Demand:
    """Round a request up to integer units; a resource the trace lacks (NaN) takes nothing.

    >>> demand_of(Request(cpu_cores=0.55 * 6, mem_gib=29.3, gpus=0.25), 4).units
    (3300, 30004, 250)
    """
    cpu, mem, gpu = (_rounded_up(value, unit) for value, unit in zip(request.row(), UNITS, strict=True))
    return Demand(units=(cpu, mem, gpu), instances=instances, gpu_type=gpu_type)


def _rounded_up(value: float, unit: int) -> int:
    if math.isnan(value):
        return 0
    if value < 0.0 or math.isinf(value):
        raise BadInput(f"request: found {value}, expected a finite amount of at least 0")
    return math.ceil(value * unit - UNIT_SLACK)


class Cluster:
    """The machines of one cluster and what is free on them.

    `capacity` and `free` are (machines, 3) in the order of `RESOURCES`; `free` changes by `allocate` and `release`
    only, and never leaves 0..capacity.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        if not machines:
            raise BadInput("cluster: found no machine, expected at least one")
        rows = [
            [math.floor(v * unit + UNIT_SLACK) for v, unit in zip((m.cpu_cores, m.mem_gib, m.gpus), UNITS, strict=True)]
            for m in machines
        ]
        self.machines = tuple(machines)
        self.capacity: IntArray = np.array(rows, dtype=np.int64)
        self.free: IntArray = self.capacity.copy()
        self.largest: IntArray = np.maximum(self.capacity.max(axis=0), 1)
        self._of_type = {
            kind: np.array([m.gpu_type == kind for m in machines]) for kind in {m.gpu_type for m in machines} if kind
        }

    def hosts(self, demand: Demand) -> IntArray:
        """Return how many instances each machine could take now (machines,), at most the gang's own number."""
        return self.hosts_of(self.free, demand)

    def fits(self, demands: Sequence[Demand]) -> BoolArray:
        """Return which of the gangs would fit now, each on its own (n,)."""
        units = np.array([demand.units for demand in demands], dtype=np.int64)[:, None, :]
        wanted = np.array([demand.instances for demand in demands], dtype=np.int64)
        each = np.where(units > 0, self.free // np.maximum(units, 1), wanted[:, None, None]).min(axis=2)
        for row, demand in enumerate(demands):
            if demand.gpu_type is not None:
                each[row] = np.where(self._of_type.get(demand.gpu_type, False), each[row], 0)
        return np.asarray(each.sum(axis=1) >= wanted, dtype=np.bool_)

    def could_host(self, demand: Demand) -> bool:
        """Return whether the whole gang fits the empty cluster."""
        return bool(self.hosts_of(self.capacity, demand).sum() >= demand.instances)

    def hosts_of(self, room: IntArray, demand: Demand) -> IntArray:
        """Return how many instances fit in `room` (machines, 3) per machine, at most the gang's own number."""
        units = np.array(demand.units, dtype=np.int64)
        per_resource = np.where(units > 0, room // np.maximum(units, 1), demand.instances)
        fits: IntArray = per_resource.min(axis=1)
        if demand.gpu_type is not None:
            fits = np.where(self._of_type.get(demand.gpu_type, False), fits, 0)
        return np.asarray(np.minimum(fits, demand.instances), dtype=np.int64)

    def allocate(self, allocation: Allocation) -> None:
        """Take an allocation's units from its machines."""
        self._move(allocation, -1)

    def release(self, allocation: Allocation) -> None:
        """Give an allocation's units back."""
        self._move(allocation, 1)

    def _move(self, allocation: Allocation, sign: int) -> None:
        units = np.array(allocation.demand.units, dtype=np.int64)
        for machine, count in allocation.counts:
            after = self.free[machine] + sign * count * units
            if (after < 0).any() or (after > self.capacity[machine]).any():
                raise SchedulerError(
                    f"machine {self.machines[machine].name!r}: free units would become {after.tolist()}, "
                    f"expected within 0..{self.capacity[machine].tolist()}; an allocation is taken or released twice"
                )
            self.free[machine] = after


def paper_machines() -> tuple[Machine, ...]:
    """Return the cluster of the paper's experiments: four machines of 8 GPUs, 96 cores and 512 GiB."""
    return tuple(Machine(name=f"m{i}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for i in range(4))

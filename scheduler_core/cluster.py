"""Machines, their free capacity and the room they make, in integer milli-units, so that giving back is exact.

Which machine is taken is decided in `placement`; a machine's GPUs are counted together, not device by device, so two
instances of 0.6 GPU fit a machine with 1.2 GPUs free whichever devices those are.
Called by `placement`, `rounds`, `backfill`, `preemption` and `pending`; the compiled engine reads its capacities.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.types import BoolArray, FloatArray, IntArray, Request

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

    @property
    def milli_gpus(self) -> int:
        """Return the whole gang's milli-GPUs."""
        return self.units[2] * self.instances


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


class Room:
    """Free units by machine (machines, 3), and what a placement may ask about them; never changed.

    `largest` is the largest machine's capacity by resource (3,), at least 1; `up` marks the machines that are there,
    the others have nothing free; `of_type` marks the machines of each GPU type.
    """

    def __init__(self, free: IntArray, largest: IntArray, up: BoolArray, of_type: Mapping[str, BoolArray]) -> None:
        self.free = free
        self.largest = largest
        self.up = up
        self.of_type = of_type
        self._most: list[int] = free.max(axis=0).tolist()
        self._total: list[int] = free.sum(axis=0).tolist()

    def hosts(self, demand: Demand) -> IntArray:
        """Return how many instances each machine could take (machines,), at most the gang's own number."""
        units = np.array(demand.units, dtype=np.int64)
        per_resource = np.where(units > 0, self.free // np.maximum(units, 1), demand.instances)
        hosts: IntArray = np.minimum(per_resource.min(axis=1), demand.instances)
        return np.where(self.open_to(demand), hosts, 0)

    def fits(self, demand: Demand) -> bool:
        """Return whether the whole gang fits, no instance split."""
        return self._may_fit(demand) and int(self.hosts(demand).sum()) >= demand.instances

    def open_to(self, demand: Demand) -> BoolArray:
        """Return which machines are up and of the gang's GPU type (machines,)."""
        if demand.gpu_type is None:
            return self.up
        return self.up & self.of_type.get(demand.gpu_type, np.False_)

    def freeness(self) -> FloatArray:
        """Return by machine the sum over resources of free over the largest machine's capacity (machines,)."""
        return np.asarray((self.free / self.largest).sum(axis=1), dtype=np.float64)

    def with_(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the room that is there once these are given back."""
        return self._moved(allocations, 1)

    def without(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the room that is left once these are taken."""
        return self._moved(allocations, -1)

    def within(self, other: "Room") -> "Room":
        """Return what is free in both."""
        return Room(np.minimum(self.free, other.free), self.largest, self.up, self.of_type)

    def _moved(self, allocations: Iterable[Allocation], sign: int) -> "Room":
        free = self.free.copy()
        for allocation in allocations:
            _move(free, allocation, sign)
        return Room(free, self.largest, self.up, self.of_type)

    def _may_fit(self, demand: Demand) -> bool:
        """Look at the largest machine's room and at all of it: most gangs that cannot start fail already here."""
        cpu, mem, gpu = demand.units
        most, total, count = self._most, self._total, demand.instances
        return (
            cpu <= most[0]
            and mem <= most[1]
            and gpu <= most[2]
            and cpu * count <= total[0]
            and mem * count <= total[1]
            and gpu * count <= total[2]
        )


class Cluster:
    """The machines of one cluster, what is free on them, and which are away.

    `capacity` and `free` are (machines, 3) in the order of `RESOURCES`; `free` changes by `allocate` and `release`
    only, and never leaves 0..capacity. What is free on a machine that is away is in no `room()`.
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
        self.total: IntArray = np.maximum(self.capacity.sum(axis=0), 1)
        self.holds: IntArray = np.zeros(len(machines), dtype=np.int64)
        self._of_type = {
            kind: np.array([m.gpu_type == kind for m in machines]) for kind in {m.gpu_type for m in machines} if kind
        }
        self._empty = Room(self.capacity, self.largest, np.ones(len(machines), dtype=np.bool_), self._of_type)

    def room(self) -> Room:
        """Return what is free now on the machines that are up."""
        up = self.holds == 0
        return Room(np.where(up[:, None], self.free, 0), self.largest, up, self._of_type)

    def of_type(self, gpu_type: str | None) -> BoolArray:
        """Return which machines are of a GPU type (machines,); all for None."""
        everywhere = np.ones(len(self.machines), dtype=np.bool_)
        return everywhere if gpu_type is None else everywhere & self._of_type.get(gpu_type, np.False_)

    def could_host(self, demand: Demand) -> bool:
        """Return whether the whole gang fits the empty cluster, all machines up."""
        return self._empty.fits(demand)

    def allocate(self, allocation: Allocation) -> None:
        """Take an allocation's units from its machines."""
        self._checked_move(allocation, -1)

    def release(self, allocation: Allocation) -> None:
        """Give an allocation's units back."""
        self._checked_move(allocation, 1)

    def down(self, machine: int) -> None:
        """Put a machine out of reach; it stays so until every `down` of it was followed by an `up`."""
        self.holds[machine] += 1

    def up(self, machine: int) -> None:
        """Take back one `down`."""
        if self.holds[machine] == 0:
            raise SchedulerError(f"machine {self.machines[machine].name!r}: found it up, expected it down")
        self.holds[machine] -= 1

    def _checked_move(self, allocation: Allocation, sign: int) -> None:
        _move(self.free, allocation, sign)
        for machine, _ in allocation.counts:
            after, most = self.free[machine].tolist(), self.capacity[machine].tolist()
            if min(after) < 0 or any(free > capacity for free, capacity in zip(after, most, strict=True)):
                _move(self.free, allocation, -sign)
                raise SchedulerError(
                    f"machine {self.machines[machine].name!r}: free units would become {after}, "
                    f"expected within 0..{most}; an allocation is taken or released twice"
                )


def _move(free: IntArray, allocation: Allocation, sign: int) -> None:
    units = np.array(allocation.demand.units, dtype=np.int64)
    for machine, count in allocation.counts:
        free[machine] += sign * count * units


def paper_machines() -> tuple[Machine, ...]:
    """Return the cluster of the paper's experiments: four machines of 8 GPUs, 96 cores and 512 GiB."""
    return tuple(Machine(name=f"m{i}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for i in range(4))

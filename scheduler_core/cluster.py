"""The machines of a cluster (`Cluster`), and what is free on them in integer units (`Room`).

GPUs of a machine are counted either as one pool or device by device. In a pool, two instances of 0.6 GPU fit 1.2 free
GPUs on any devices. `placement` chooses machines.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.gangs import (
    ALTERNATIVES,
    GPUS,
    MILLI,
    UNIT_SLACK,
    UNITS,
    WHOLE,
    Allocation,
    Demand,
    Sharing,
    demand_of,
    in_devices,
    shape,
    slots,
    whole_devices,
)
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "ALTERNATIVES",
    "MILLI",
    "UNITS",
    "UNIT_SLACK",
    "Allocation",
    "Cluster",
    "Demand",
    "Machine",
    "Room",
    "demand_of",
    "in_devices",
    "move",
    "paper_machines",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The capacity of one machine.

    Raises
    ------
    BadInput
        If an amount is not a finite number of at least 0, or the number of GPUs is not whole.
    """

    name: str
    cpu_cores: float
    mem_gib: float
    gpus: int
    gpu_type: str | None = None

    def __post_init__(self) -> None:
        amounts = {"cpu_cores": self.cpu_cores, "mem_gib": self.mem_gib, "gpus": self.gpus}
        for resource, amount in amounts.items():
            try:
                holds = 0.0 <= amount < math.inf and (resource != "gpus" or amount == int(amount))
            except TypeError:
                holds = False
            if not holds:
                expected = "a whole number of at least 0" if resource == "gpus" else "a finite amount of at least 0"
                raise BadInput(f"machine {self.name!r}: found {resource}={amount!r}, expected {expected}")


def paper_machines() -> tuple[Machine, ...]:
    """Return the cluster of Yang, Hong and Tang: four machines with 8 GPUs, 96 cores and 512 GiB each."""
    return tuple(Machine(name=f"m{i}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for i in range(4))


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Free capacity of every machine, with the queries that explanations need.

    `free` (machines, 3) holds free units, 0 for machines that are down. `largest` (3,) is the maximum capacity of a
    machine per resource, at least 1. `up` (machines,) marks machines that are up. `of_type` maps each GPU type to a
    mask of its machines.

    `devices` (machines, most GPUs of any machine) holds the free milli-GPUs of every GPU. `tenants` (machines, most
    GPUs + 1) counts instances by GPU size: column 0 counts those with a part of a GPU, column k those with k whole
    GPUs. Both are None when GPUs are pooled.
    """

    free: IntArray
    largest: IntArray
    up: BoolArray
    of_type: Mapping[str, BoolArray]
    devices: IntArray | None = None
    tenants: IntArray | None = None

    def hosts(self, demand: Demand) -> IntArray:
        """Return how many instances of a gang each machine could host (machines,), at most the size of the gang."""
        hosts = np.where(self.open_to(demand), demand.instances, 0)
        # One resource at a time, since numpy is slow along an axis of length three.
        for at, units in enumerate(demand.units):
            if units > 0:
                devices = self.devices if at == GPUS else None
                hosts = np.minimum(hosts, self.free[:, at] // units if devices is None else slots(devices, units))
        return hosts

    def fits(self, demand: Demand) -> bool:
        """Return whether the whole gang fits, without splitting an instance over machines."""
        return int(self.hosts(demand).sum()) >= demand.instances

    def open_to(self, demand: Demand) -> BoolArray:
        """Return which machines are up and have a GPU type that the gang allows (machines,)."""
        return self.up if demand.gpu_type is None else self.up & _typed(self.of_type, demand.gpu_type)

    def freeness(self) -> FloatArray:
        """Return the sum over resources of each machine's free units / `largest` (machines,)."""
        cpu, mem, gpu = (self.free[:, at] / self.largest[at] for at in range(len(UNITS)))
        return np.asarray(cpu + mem + gpu, dtype=np.float64)

    def with_(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the free capacity after releasing allocations."""
        free = self.free.copy()
        devices = None if self.devices is None else self.devices.copy()
        tenants = None if self.tenants is None else self.tenants.copy()
        for allocation in allocations:
            move(allocation, 1, free, devices, tenants)
        return Room(free, self.largest, self.up, self.of_type, devices, tenants)

    def only(self, up: BoolArray) -> "Room":
        """Return the free capacity if the machines not marked in `up` (machines,) are down."""
        parts = (None if each is None else each * up[:, None] for each in (self.devices, self.tenants))
        return Room(self.free * up[:, None], self.largest, up, self.of_type, *parts)


def move(allocation: Allocation, sign: int, free: Any, devices: Any, tenants: Any) -> None:  # Any: arrays or lists
    """Release an allocation (`sign` 1) or take it (-1) in the free capacity of a `Room`, as arrays or lists of rows."""
    cpu, mem, gpus = allocation.demand.units
    if devices is not None and gpus > 0:
        count, each = shape(gpus)
        for machine, device, milli in allocation.devices:
            devices[machine][device] += sign * milli
            free[machine][GPUS] += sign * milli
        for machine, instances in allocation.counts:
            tenants[machine][count if each == WHOLE else 0] -= sign * instances
        gpus = 0
    for machine, instances in allocation.counts:
        row = free[machine]
        for at, units in enumerate((cpu, mem, gpus)):
            row[at] += sign * instances * units


class Cluster:
    """The machines of one cluster.

    `capacity` is (machines, 3) in the order of `RESOURCES`; `largest` and `total` (3,) are its maximum and its sum, at
    least 1. `devices` is as in `Room`, None when GPUs are pooled. `empty` is the free capacity without jobs.

    Raises
    ------
    BadInput
        If there is no machine, or two have the same name.
    """

    def __init__(self, machines: Sequence[Machine], sharing: Sharing = "pooled") -> None:
        if not machines:
            raise BadInput("cluster: found no machine, expected at least one")
        name, count = Counter(machine.name for machine in machines).most_common(1)[0]
        if count > 1:
            raise BadInput(f"cluster: found {count} machines named {name!r}, expected a different name for each")
        amounts = np.array([(m.cpu_cores, m.mem_gib, m.gpus) for m in machines], dtype=np.float64)
        self.machines = tuple(machines)
        self.capacity: IntArray = np.floor(amounts * UNITS + UNIT_SLACK).astype(np.int64)
        self.largest: IntArray = np.maximum(self.capacity.max(axis=0), 1)
        self.total: IntArray = np.maximum(self.capacity.sum(axis=0), 1)
        self.devices = whole_devices([machine.gpus for machine in machines]) if sharing == "devices" else None
        tenants = None
        if self.devices is not None:
            tenants = np.zeros((len(machines), self.devices.shape[1] + 1), dtype=np.int64)
        types = {machine.gpu_type for machine in machines if machine.gpu_type}
        of_type = {kind: np.array([machine.gpu_type == kind for machine in machines]) for kind in types}
        everywhere = np.ones(len(machines), dtype=np.bool_)
        self.empty = Room(self.capacity, self.largest, everywhere, of_type, self.devices, tenants)
        self._hosted: dict[Demand, bool] = {}

    def of_type(self, gpu_type: str | None) -> BoolArray:
        """Return which machines have a given GPU type or one of its listed alternatives (machines,); all for None."""
        everywhere = self.empty.up
        return everywhere if gpu_type is None else everywhere & _typed(self.empty.of_type, gpu_type)

    def could_host(self, demand: Demand) -> bool:
        """Return whether the whole gang would fit the empty cluster with all machines up."""
        if demand not in self._hosted:
            self._hosted[demand] = self.empty.fits(demand)
        return self._hosted[demand]


def _typed(of_type: Mapping[str, BoolArray], gpu_type: str) -> BoolArray:
    """Return which machines have one of the listed GPU types (machines,); one False if no machine has."""
    marks = [of_type[kind] for kind in gpu_type.split(ALTERNATIVES) if kind in of_type]
    return np.logical_or.reduce(marks) if marks else np.zeros(1, dtype=np.bool_)

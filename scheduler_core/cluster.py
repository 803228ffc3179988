"""Free capacity of machines in integer units (`Room`), and the cluster that allocates and releases it (`Cluster`).

GPUs of a machine are counted either as one pool or device by device. In a pool, two instances of 0.6 GPU fit 1.2 free
GPUs on any devices. `placement` chooses machines.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import gt

import numpy as np

from scheduler_core.devices import Sharing, bound, moved, no_tenants, settled, slots, whole_devices
from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.gangs import ALTERNATIVES, GPUS, MILLI, UNIT_SLACK, UNITS, Allocation, Demand, demand_of, in_devices
from scheduler_core.machines import Machine, MachineKind, could_host, kinds_of, paper_machines
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
    "paper_machines",
]


class Room:
    """Free capacity of every machine, with the queries that placements need; immutable.

    `free` (machines, 3) holds free units, 0 for machines that are down. `largest` (3,) is the maximum capacity of a
    machine per resource, at least 1. `up` (machines,) marks machines that are up. `of_type` maps each GPU type to a
    mask of its machines.

    `devices` (machines, most GPUs of any machine) holds the free milli-GPUs of every GPU. `tenants` (machines, most
    GPUs + 1) counts instances by GPU size: column 0 counts those with a part of a GPU, column k those with k whole
    GPUs. Both are None when GPUs are pooled.
    """

    def __init__(
        self,
        free: IntArray,
        largest: IntArray,
        up: BoolArray,
        of_type: Mapping[str, BoolArray],
        devices: IntArray | None = None,
        tenants: IntArray | None = None,
    ) -> None:
        self.free = free
        self.largest = largest
        self.up = up
        self.of_type = of_type
        self.devices = devices
        self.tenants = tenants
        # Cached result of the last query, since `fits` and then a placement query the same demand.
        self._last: tuple[Demand, IntArray] | None = None

    def hosts(self, demand: Demand) -> IntArray:
        """Return how many instances of a gang each machine could host (machines,), at most the size of the gang."""
        if self._last is None or self._last[0] != demand:
            hosts = np.where(self.open_to(demand), demand.instances, 0)
            # One resource at a time, since numpy is slow along an axis of length three.
            for at, units in enumerate(demand.units):
                if units > 0:
                    by_devices = self.devices if at == GPUS else None
                    most = self.free[:, at] // units if by_devices is None else slots(by_devices, units)
                    hosts = np.minimum(hosts, most)
            self._last = demand, hosts
        return self._last[1].copy()

    def fits(self, demand: Demand) -> bool:
        """Return whether the whole gang fits, without splitting an instance over machines."""
        return self._may_fit(demand) and int(self.hosts(demand).sum()) >= demand.instances

    def open_to(self, demand: Demand) -> BoolArray:
        """Return which machines are up and have a GPU type that the gang allows (machines,)."""
        return self.up if demand.gpu_type is None else self.up & _typed(self.of_type, demand.gpu_type)

    def freeness(self) -> FloatArray:
        """Return the sum over resources of each machine's free units / `largest` (machines,)."""
        cpu, mem, gpu = (self.free[:, at] / self.largest[at] for at in range(len(UNITS)))
        return np.asarray(cpu + mem + gpu, dtype=np.float64)

    def allocation(self, demand: Demand, counts: Sequence[tuple[int, int]]) -> Allocation:
        """Return the allocation for given (machine, instances) pairs, with devices chosen by best fit."""
        taken = () if self.devices is None else bound(self.devices, demand.units[2], counts)
        return Allocation(demand=demand, counts=tuple(counts), devices=taken)

    def with_(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the free capacity after releasing allocations."""
        return self._moved(allocations, 1)

    def without(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the free capacity after taking allocations."""
        return self._moved(allocations, -1)

    def within(self, other: "Room") -> "Room":
        """Return the capacity that is free both here and in `other`."""
        free = np.minimum(self.free, other.free)
        if self.devices is None or other.devices is None or self.tenants is None or other.tenants is None:
            return Room(free, self.largest, self.up, self.of_type)
        # Free capacity is the minimum of both per device; a tenant count is the larger of both.
        left = np.minimum(self.devices, other.devices)
        free[:, 2] = left.sum(axis=1)
        return Room(free, self.largest, self.up, self.of_type, left, np.maximum(self.tenants, other.tenants))

    def _moved(self, allocations: Iterable[Allocation], sign: int) -> "Room":
        free = self.free.copy()
        left = None if self.devices is None else self.devices.copy()
        held = None if self.tenants is None else self.tenants.copy()
        for allocation in allocations:
            _move(free, left, held, allocation, sign)
        return Room(free, self.largest, self.up, self.of_type, left, held)

    def _may_fit(self, demand: Demand) -> bool:
        """Return False if a gang needs more of a resource than the freest machine or all machines together have free.

        This cheap check rejects most gangs that do not fit. The first query skips it, because the totals cost more to
        compute than one query.
        """
        return self._last is None or all(
            units <= most and units * demand.instances <= total
            for units, (most, total) in zip(demand.units, self._bounds, strict=True)
        )

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """Return for each resource the free units of the machine with most of it, and the sum over machines."""
        return [(int(self.free[:, at].max()), int(self.free[:, at].sum())) for at in range(len(UNITS))]


class Cluster:
    """The machines of one cluster, their free capacity, and which of them are down.

    `capacity` and `free` are (machines, 3) in the order of `RESOURCES`. Only `allocate` and `release` change `free`,
    which stays within 0..`capacity`. `holds` counts the current outages of each machine. `devices` and `tenants` are as
    in `Room`, None when GPUs are pooled. `empty` is the free capacity of the cluster without jobs and outages.
    """

    def __init__(self, machines: Sequence[Machine], sharing: Sharing = "pooled") -> None:
        if not machines:
            raise BadInput("cluster: found no machine, expected at least one")
        name, count = Counter(machine.name for machine in machines).most_common(1)[0]
        if count > 1:
            raise BadInput(f"cluster: found {count} machines named {name!r}, expected a different name for each")
        rows = [
            [math.floor(v * unit + UNIT_SLACK) for v, unit in zip((m.cpu_cores, m.mem_gib, m.gpus), UNITS, strict=True)]
            for m in machines
        ]
        self.machines = tuple(machines)
        self.capacity: IntArray = np.array(rows, dtype=np.int64)
        self.free: IntArray = self.capacity.copy()
        self.devices = whole_devices([machine.gpus for machine in machines]) if sharing == "devices" else None
        self.tenants = None if self.devices is None else no_tenants(self.devices)
        self.largest: IntArray = np.maximum(self.capacity.max(axis=0), 1)
        self.total: IntArray = np.maximum(self.capacity.sum(axis=0), 1)
        self.holds: IntArray = np.zeros(len(machines), dtype=np.int64)
        self._of_type = {
            kind: np.array([m.gpu_type == kind for m in machines]) for kind in {m.gpu_type for m in machines} if kind
        }
        self._rows: list[list[int]] = self.capacity.tolist()
        devices = [None if self.devices is None else machine.gpus for machine in machines]
        self._kinds = kinds_of(
            MachineKind(units=tuple(row), gpu_type=machine.gpu_type, devices=own)
            for row, machine, own in zip(self._rows, machines, devices, strict=True)
        )
        all_up = np.ones(len(machines), dtype=np.bool_)
        empty = None if self.devices is None else self.devices.copy()
        no_tenant_counts = None if self.tenants is None else self.tenants.copy()
        self.empty = Room(self.capacity, self.largest, all_up, self._of_type, empty, no_tenant_counts)

    def room(self) -> Room:
        """Return the current free capacity; machines that are down have nothing free."""
        up = self.holds == 0
        left = None if self.devices is None else _if_up(up, self.devices)
        held = None if self.tenants is None else _if_up(up, self.tenants)
        return Room(_if_up(up, self.free), self.largest, up, self._of_type, left, held)

    def of_type(self, gpu_type: str | None) -> BoolArray:
        """Return which machines have a given GPU type or one of its listed alternatives (machines,); all for None."""
        everywhere = np.ones(len(self.machines), dtype=np.bool_)
        return everywhere if gpu_type is None else everywhere & _typed(self._of_type, gpu_type)

    def could_host(self, demand: Demand) -> bool:
        """Return whether the whole gang would fit the empty cluster with all machines up."""
        return could_host(self._kinds, demand)

    def allocate(self, allocation: Allocation) -> None:
        """Subtract an allocation from the free capacity."""
        self._checked_move(allocation, -1)

    def release(self, allocation: Allocation) -> None:
        """Add an allocation back to the free capacity."""
        self._checked_move(allocation, 1)

    def down(self, machine: int) -> None:
        """Mark a machine as down; it stays down until `up` was called as often as `down`.

        Raises
        ------
        BadInput
            If no machine has that index.
        """
        self._check_index(machine)
        self.holds[machine] += 1

    def up(self, machine: int) -> None:
        """Undo one call of `down` for a machine.

        Raises
        ------
        BadInput
            If no machine has that index.
        SchedulerError
            If the machine is up.
        """
        self._check_index(machine)
        if self.holds[machine] == 0:
            raise SchedulerError(f"machine {self.machines[machine].name!r}: found it up, expected it down")
        self.holds[machine] -= 1

    def _check_index(self, machine: int) -> None:
        # An index below 0 would count from the end.
        if not 0 <= machine < len(self.machines):
            raise BadInput(f"cluster: found machine {machine}, expected an index of 0 to {len(self.machines) - 1}")

    def _checked_move(self, allocation: Allocation, sign: int) -> None:
        _move(self.free, self.devices, self.tenants, allocation, sign)
        for machine, _ in allocation.counts:
            after, most = self.free[machine].tolist(), self._rows[machine]
            wrong = min(after) < 0 or any(map(gt, after, most))
            if self.devices is not None and self.empty.devices is not None:
                left, whole = self.devices[machine], self.empty.devices[machine]
                wrong = wrong or bool(((left < 0) | (left > whole)).any())
            if wrong:
                _move(self.free, self.devices, self.tenants, allocation, -sign)
                raise SchedulerError(
                    f"machine {self.machines[machine].name!r}: free units would become {after}, "
                    f"expected within 0..{most}{'' if self.devices is None else ', and each GPU within its own'}; "
                    "an allocation was taken or released twice"
                )


def _if_up(up: BoolArray, by_machine: IntArray) -> IntArray:
    """Return a copy of per-machine values with 0 for machines that are down."""
    rows = by_machine.copy()
    rows[~up] = 0
    return rows


def _typed(of_type: Mapping[str, BoolArray], gpu_type: str) -> BoolArray:
    """Return which machines have one of the listed GPU types (machines,); one False if no machine has."""
    marks = [of_type[kind] for kind in gpu_type.split(ALTERNATIVES) if kind in of_type]
    return np.logical_or.reduce(marks) if marks else np.zeros(1, dtype=np.bool_)


def _move(free: IntArray, left: IntArray | None, held: IntArray | None, allocation: Allocation, sign: int) -> None:
    """Release (`sign` 1) or take (-1) an allocation, changing the arrays in place.

    `left` is the free capacity of devices and `held` the tenant counts, None when GPUs are pooled.
    """
    units = np.array(allocation.demand.units, dtype=np.int64)
    if left is not None:
        if units[2] > 0 and not allocation.devices:
            raise SchedulerError(
                f"placement: found GPUs of machines {[at for at, _ in allocation.counts]} without devices, "
                "expected devices where GPUs are shared by device; use Room.allocation"
            )
        moved(left, allocation.devices, sign)
        if held is not None and units[2] > 0:
            settled(held, int(units[2]), allocation.counts, -sign)
        for machine, _, milli in allocation.devices:
            free[machine, 2] += sign * milli
        units[2] = 0
    for machine, count in allocation.counts:
        free[machine] += sign * count * units

"""Free capacity of machines in integer units (`Room`), and the cluster that allocates and releases it (`Cluster`).

Machines are chosen in `placement`. GPUs of a machine are pooled (two instances of 0.6 GPU fit 1.2 free GPUs, on
whichever devices) or shared by device. Called by `placement`, `rounds`, `preemption`, `pending` and the simulator.
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
    """Free units by machine (machines, 3), and the queries of placements; immutable.

    `largest` is the largest machine's capacity by resource (3,), at least 1; `up` marks the machines that are up, the
    others have nothing free; `of_type` marks the machines of each GPU type. `devices` are the free milli-GPUs of
    every GPU (machines, most GPUs of any machine), which add up to `free`; `tenants` counts the instances with a part
    of a GPU (column 0) or with k whole ones (column k). Both are None when GPUs are pooled.
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
        # `fits` and a placement query the same demand one after the other.
        self._last: tuple[Demand, IntArray] | None = None

    def hosts(self, demand: Demand) -> IntArray:
        """Return how many instances each machine could host (machines,), at most the gang's own number."""
        if self._last is None or self._last[0] != demand:
            hosts = np.where(self.open_to(demand), demand.instances, 0)
            # Resource by resource: numpy is slow along an axis of three.
            for at, units in enumerate(demand.units):
                if units > 0:
                    by_devices = self.devices if at == GPUS else None
                    most = self.free[:, at] // units if by_devices is None else slots(by_devices, units)
                    hosts = np.minimum(hosts, most)
            self._last = demand, hosts
        return self._last[1].copy()

    def fits(self, demand: Demand) -> bool:
        """Return whether the whole gang fits, no instance split."""
        return self._may_fit(demand) and int(self.hosts(demand).sum()) >= demand.instances

    def open_to(self, demand: Demand) -> BoolArray:
        """Return which machines are up and of the gang's GPU type (machines,)."""
        return self.up if demand.gpu_type is None else self.up & _typed(self.of_type, demand.gpu_type)

    def freeness(self) -> FloatArray:
        """Return by machine the sum over resources of free over the largest machine's capacity (machines,)."""
        cpu, mem, gpu = (self.free[:, at] / self.largest[at] for at in range(len(UNITS)))
        return np.asarray(cpu + mem + gpu, dtype=np.float64)

    def allocation(self, demand: Demand, counts: Sequence[tuple[int, int]]) -> Allocation:
        """Return the allocation of these (machine, instances) counts, with devices chosen by best fit."""
        taken = () if self.devices is None else bound(self.devices, demand.units[2], counts)
        return Allocation(demand=demand, counts=tuple(counts), devices=taken)

    def with_(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the room after these allocations are released."""
        return self._moved(allocations, 1)

    def without(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the room after these allocations are taken."""
        return self._moved(allocations, -1)

    def within(self, other: "Room") -> "Room":
        """Return what is free in both rooms."""
        free = np.minimum(self.free, other.free)
        if self.devices is None or other.devices is None or self.tenants is None or other.tenants is None:
            return Room(free, self.largest, self.up, self.of_type)
        # The minimum is taken device by device; a tenant of either room counts.
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
        """Compare with the freest machine and with the total: most gangs that do not fit fail here already.

        The first query of a room skips this, since the totals cost more than one query.
        """
        return self._last is None or all(
            units <= most and units * demand.instances <= total
            for units, (most, total) in zip(demand.units, self._bounds, strict=True)
        )

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """Return by resource the most free units of a machine, and the sum over machines."""
        return [(int(self.free[:, at].max()), int(self.free[:, at].sum())) for at in range(len(UNITS))]


class Cluster:
    """The machines of one cluster, their free capacity, and which of them are down.

    `capacity` and `free` are (machines, 3) in the order of `RESOURCES`; `free` changes by `allocate` and `release`
    only, and never leaves 0..capacity. `room()` leaves out machines that are down. `devices` and
    `tenants` are as in `Room`; None when GPUs are pooled. `empty` is the room of the whole cluster without any job.
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
        """Return the free capacity of the machines that are up."""
        up = self.holds == 0
        left = None if self.devices is None else _if_up(up, self.devices)
        held = None if self.tenants is None else _if_up(up, self.tenants)
        return Room(_if_up(up, self.free), self.largest, up, self._of_type, left, held)

    def of_type(self, gpu_type: str | None) -> BoolArray:
        """Return which machines are of a GPU type, or of one of several (machines,); all for None."""
        everywhere = np.ones(len(self.machines), dtype=np.bool_)
        return everywhere if gpu_type is None else everywhere & _typed(self._of_type, gpu_type)

    def could_host(self, demand: Demand) -> bool:
        """Return whether the whole gang fits the empty cluster, all machines up."""
        return could_host(self._kinds, demand)

    def allocate(self, allocation: Allocation) -> None:
        """Take the units of an allocation."""
        self._checked_move(allocation, -1)

    def release(self, allocation: Allocation) -> None:
        """Return the units of an allocation."""
        self._checked_move(allocation, 1)

    def down(self, machine: int) -> None:
        """Take a machine down; it stays down until each `down` is matched by an `up`.

        Raises
        ------
        BadInput
            If there is no machine of that index.
        """
        self._check_index(machine)
        self.holds[machine] += 1

    def up(self, machine: int) -> None:
        """Undo one `down` of a machine.

        Raises
        ------
        BadInput
            If there is no machine of that index.
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
    """Return a copy with 0 for machines that are down."""
    rows = by_machine.copy()
    rows[~up] = 0
    return rows


def _typed(of_type: Mapping[str, BoolArray], gpu_type: str) -> BoolArray:
    """Return which machines are of one of the listed types (machines,); a single False if no type exists."""
    marks = [of_type[kind] for kind in gpu_type.split(ALTERNATIVES) if kind in of_type]
    return np.logical_or.reduce(marks) if marks else np.zeros(1, dtype=np.bool_)


def _move(free: IntArray, left: IntArray | None, held: IntArray | None, allocation: Allocation, sign: int) -> None:
    """Add or subtract an allocation in place; with devices (`left`), GPUs are moved by device; `held` are tenants."""
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

"""Machines, their free capacity and the room they make, in integer milli-units, so that giving back is exact.

What gangs take is in `demand`, which machine they take it from is decided in `placement`. A machine's GPUs are counted
together (pooled: two instances of 0.6 GPU fit 1.2 free GPUs whichever devices those are), or one by one.
Called by `placement`, `rounds`, `backfill`, `preemption` and `pending`; the compiled engine reads its capacities.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import gt

import numpy as np

from scheduler_core.demand import ALTERNATIVES as ALTERNATIVES  # all of them handed on: nouns beside machines
from scheduler_core.demand import GPUS as GPUS
from scheduler_core.demand import MILLI as MILLI
from scheduler_core.demand import UNIT_SLACK as UNIT_SLACK
from scheduler_core.demand import UNITS as UNITS
from scheduler_core.demand import Allocation as Allocation
from scheduler_core.demand import Demand as Demand
from scheduler_core.demand import demand_of as demand_of
from scheduler_core.demand import in_devices as in_devices
from scheduler_core.devices import Sharing, bound, moved, no_tenants, settled, slots, whole_devices
from scheduler_core.errors import BadInput, SchedulerError
from scheduler_core.machines import Machine as Machine
from scheduler_core.machines import MachineKind, could_host, kinds_of
from scheduler_core.machines import paper_machines as paper_machines
from scheduler_core.types import BoolArray, FloatArray, IntArray


class Room:
    """Free units by machine (machines, 3), and what a placement may ask about them; never changed.

    `largest` is the largest machine's capacity by resource (3,), at least 1; `up` marks the machines that are there,
    the others have nothing free; `of_type` marks the machines of each GPU type. `devices` are the free milli-GPUs of
    every GPU (machines, most GPUs of any machine), whose sums are `free`'s; `tenants` counts the instances there with a
    part of a GPU (column 0) or with k whole ones (column k). Both are None when GPUs are pooled.
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
        # Whether a gang fits and where it goes are asked one after the other.
        self._last: tuple[Demand, IntArray] | None = None

    def hosts(self, demand: Demand) -> IntArray:
        """Return how many instances each machine could take (machines,), at most the gang's own number."""
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
        """Return the allocation of so many instances to machines that host them, its GPUs chosen by best fit."""
        taken = () if self.devices is None else bound(self.devices, demand.units[2], counts)
        return Allocation(demand=demand, counts=tuple(counts), devices=taken)

    def with_(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the room that is there once these are given back."""
        return self._moved(allocations, 1)

    def without(self, allocations: Iterable[Allocation]) -> "Room":
        """Return the room that is left once these are taken."""
        return self._moved(allocations, -1)

    def within(self, other: "Room") -> "Room":
        """Return what is free in both."""
        free = np.minimum(self.free, other.free)
        if self.devices is None or other.devices is None or self.tenants is None or other.tenants is None:
            return Room(free, self.largest, self.up, self.of_type)
        # Sums of what both have of each device, not the smaller sum; what holds the rest is in one of them at least.
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
        """Look at the largest machine's room and at all of it: most gangs that cannot start fail already here.

        A room is asked once only where the gang starts, and summing one up costs more than the one question.
        """
        return self._last is None or all(
            units <= most and units * demand.instances <= total
            for units, (most, total) in zip(demand.units, self._bounds, strict=True)
        )

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """Return by resource what is free on the freest machine, and on all."""
        return [(int(self.free[:, at].max()), int(self.free[:, at].sum())) for at in range(len(UNITS))]


class Cluster:
    """The machines of one cluster, what is free on them, and which are away.

    `capacity` and `free` are (machines, 3) in the order of `RESOURCES`; `free` changes by `allocate` and `release`
    only, and never leaves 0..capacity. What is free on a machine that is away is in no `room()`. `devices` are the free
    milli-GPUs of every GPU and `tenants` who is there, as in `Room`; None when they are pooled. `empty` is the room of
    the whole cluster with nothing on it.
    """

    def __init__(self, machines: Sequence[Machine], sharing: Sharing = "pooled") -> None:
        if not machines:
            raise BadInput("cluster: found no machine, expected at least one")
        name, count = Counter(machine.name for machine in machines).most_common(1)[0]
        if count > 1:
            raise BadInput(f"cluster: found {count} machines named {name!r}, expected a name of its own for each")
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
        nobody = None if self.tenants is None else self.tenants.copy()
        self.empty = Room(self.capacity, self.largest, all_up, self._of_type, empty, nobody)

    def room(self) -> Room:
        """Return what is free now on the machines that are up."""
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
        """Take an allocation's units from its machines."""
        self._checked_move(allocation, -1)

    def release(self, allocation: Allocation) -> None:
        """Give an allocation's units back."""
        self._checked_move(allocation, 1)

    def down(self, machine: int) -> None:
        """Put a machine out of reach; it stays so until every `down` of it was followed by an `up`.

        Raises
        ------
        BadInput
            If there is no machine of that index.
        """
        self._check_index(machine)
        self.holds[machine] += 1

    def up(self, machine: int) -> None:
        """Take back one `down`.

        Raises
        ------
        BadInput
            If there is no machine of that index.
        SchedulerError
            If it is up.
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
                    "an allocation is taken or released twice"
                )


def _if_up(up: BoolArray, by_machine: IntArray) -> IntArray:
    """Return rows by machine, with 0 for those that are away."""
    rows = by_machine.copy()
    rows[~up] = 0
    return rows


def _typed(of_type: Mapping[str, BoolArray], gpu_type: str) -> BoolArray:
    """Return which machines are of one of the types that a name lists (machines,); one False where none is."""
    marks = [of_type[kind] for kind in gpu_type.split(ALTERNATIVES) if kind in of_type]
    return np.logical_or.reduce(marks) if marks else np.zeros(1, dtype=np.bool_)


def _move(free: IntArray, left: IntArray | None, held: IntArray | None, allocation: Allocation, sign: int) -> None:
    """Move an allocation's units; `left` are the devices, whose milli-GPUs are those that are moved; `held` tenants."""
    units = np.array(allocation.demand.units, dtype=np.int64)
    if left is not None:
        if units[2] > 0 and not allocation.devices:
            raise SchedulerError(
                f"placement: found GPUs of machines {[at for at, _ in allocation.counts]} and none by its device, "
                "expected devices where GPUs are shared by them; make allocations by Room.allocation"
            )
        moved(left, allocation.devices, sign)
        if held is not None and units[2] > 0:
            settled(held, int(units[2]), allocation.counts, -sign)
        for machine, _, milli in allocation.devices:
            free[machine, 2] += sign * milli
        units[2] = 0
    for machine, count in allocation.counts:
        free[machine] += sign * count * units

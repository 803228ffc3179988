"""The running jobs of a cluster: starting and stopping gangs, users' shares, and reservations of EASY backfill.

`queue` decides the order in which jobs are offered, `rounds` which of them may start. Called by `rounds`, `queue` and
`pending`.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, Room
from scheduler_core.devices import Sharing, shape
from scheduler_core.errors import SchedulerError
from scheduler_core.gangs import GPUS, Running, Waiting
from scheduler_core.placement import Placement
from scheduler_core.queue_policies import QueueState


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Machines reserved for the head of the queue by EASY backfill.

    `shadow_s` is the time at which the head is expected to start on `allocation`; `spare` is the other capacity free
    then. `allocation` is None if the head would not fit even after all running jobs end, because machines are down.
    """

    serial: int
    shadow_s: float
    allocation: Allocation | None
    spare: Room


@dataclass(frozen=True, slots=True)
class _Reserved:
    """The last reservation, and what it was made from: trials of one round mostly ask for the same one again."""

    head: Waiting
    now_s: float
    running: Mapping[int, Running]
    room: Room
    found: Reservation

    def answers(self, head: Waiting, now_s: float, running: Mapping[int, Running], room: Room) -> bool:
        """Return whether a question is the same: the same free capacity, runs, head and time."""
        same = self.head is head and self.now_s == now_s and self.running == running
        return same and (self.room is room or self.room.equals(room))


class Tally:
    """How many instances of a gang fit (`hosted`) while runs end one by one, updated only where they ran.

    Equals the sum of `Room.hosts` after the same releases; numpy on whole rooms would take twenty times as long.
    """

    def __init__(self, demand: Demand, room: Room) -> None:
        self._demand, self._room = demand, room
        self._open = room.open_to(demand)
        self._count, self._milli = shape(demand.units[GPUS])
        self._hosts = room.hosts(demand)
        self.hosted = int(self._hosts.sum())
        self._rows: dict[int, tuple[list[int], list[int]]] = {}

    def move(self, allocation: Allocation, sign: int) -> None:
        """Release (`sign` 1) or take back (-1) an allocation."""
        units, by_device = allocation.demand.units, self._room.devices is not None
        for machine, count in allocation.counts:
            free, _ = self._row(machine)
            for at, amount in enumerate(units):
                free[at] += 0 if by_device and at == GPUS else sign * count * amount
        for machine, device, milli in allocation.devices:
            self._row(machine)[1][device] += sign * milli
        for machine, _ in allocation.counts:
            if self._open[machine]:
                now = self._hosts_of(*self._rows[machine])
                self.hosted += now - int(self._hosts[machine])
                self._hosts[machine] = now

    def _row(self, machine: int) -> tuple[list[int], list[int]]:
        if machine not in self._rows:
            devices = [] if self._room.devices is None else self._room.devices[machine].tolist()
            self._rows[machine] = self._room.free[machine].tolist(), devices
        return self._rows[machine]

    def _hosts_of(self, free: Sequence[int], devices: Sequence[int]) -> int:
        most = self._demand.instances
        for at, units in enumerate(self._demand.units):
            if units and (at != GPUS or self._room.devices is None):
                most = min(most, free[at] // units)
            elif units:
                most = min(most, sum(device // self._milli for device in devices) // self._count)
        return most


class Occupancy:
    """A cluster with its running jobs; `running` maps serials to runs in the order of their starts.

    A demand that did not fit is blocked, that is not tried again, until capacity is released.
    """

    def __init__(self, machines: Sequence[Machine], place: Placement, sharing: Sharing = "pooled") -> None:
        self.cluster = Cluster(machines, sharing)
        self.running: dict[int, Running] = {}
        self._place = place
        self._room: Room | None = None
        self._total: list[int] = self.cluster.total.tolist()
        self._held: dict[Hashable, list[int]] = {}
        self._shares: dict[Hashable, float] = {}
        self._blocked: set[Demand] = set()
        self._reserved: _Reserved | None = None
        self._state: QueueState | None = None

    @property
    def room(self) -> Room:
        """Return the free capacity: the same object until a job starts or stops, or a machine goes down or up."""
        if self._room is None:
            self._room = self.cluster.room()
        return self._room

    def placed(self, demand: Demand) -> Allocation | None:
        """Return the allocation of a gang in the free capacity, None if it does not fit; nothing is allocated."""
        if demand in self._blocked:
            return None
        allocation = self.placed_in(demand, self.room)
        if allocation is None:
            self.block(demand)
        return allocation

    def is_blocked(self, demand: Demand) -> bool:
        """Return whether a demand has been found not to fit since the last release."""
        return demand in self._blocked

    def block(self, demand: Demand) -> None:
        """Mark a demand as not fitting until the next release."""
        self._blocked.add(demand)

    def placed_in(self, demand: Demand, room: Room) -> Allocation | None:
        """Return the allocation of a gang in a given free capacity, None if it does not fit."""
        return self._place(demand, room) if room.fits(demand) else None

    def reservation(self, head: Waiting, now_s: float) -> Reservation:
        """Return the reservation for a head of the queue that does not fit now.

        Running jobs are assumed to release their machines in the order of predicted ends, until the head fits. Equal
        predicted ends release together; a run past its predicted end is assumed to end now.

        References
        ----------
        Lifka: The ANL/IBM SP Scheduling System, JSSPP 1995; Mu'alem, Feitelson: Utilization, Predictability, Workloads,
        and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling, IEEE TPDS 2001 (EASY).
        """
        if self._reserved is None or not self._reserved.answers(head, now_s, self.running, self.room):
            found = self._reservation(head, now_s)
            self._reserved = _Reserved(head, now_s, self.running.copy(), self.room, found)
        return self._reserved.found

    def _reservation(self, head: Waiting, now_s: float) -> Reservation:
        ends = [(max(now_s, run.expected_end_s), run.allocation) for run in self.running.values()]
        tally, ended = Tally(head.demand, self.room), list[Allocation]()
        for shadow_s, ending in groupby(sorted(ends, key=itemgetter(0)), key=itemgetter(0)):
            for _, allocation in ending:
                tally.move(allocation, 1)
                ended.append(allocation)
            if tally.hosted < head.demand.instances:
                continue
            freed = self.room.with_(ended)
            chosen = self.placed_in(head.demand, freed)
            if chosen is not None:
                spare = freed.without([chosen])
                return Reservation(serial=head.serial, shadow_s=shadow_s, allocation=chosen, spare=spare)
        return Reservation(serial=head.serial, shadow_s=math.inf, allocation=None, spare=self.room)

    def start(self, job: Waiting, allocation: Allocation, now_s: float) -> Running:
        """Start a job: take its allocation and record the run."""
        run = Running(waiting=job, allocation=allocation, start_s=now_s)
        self.cluster.allocate(allocation)
        self._room = None
        self.running[job.serial] = run
        self._charge(run, 1)
        return run

    def stop(self, serial: int) -> Running:
        """Stop a run and release its allocation.

        Raises
        ------
        SchedulerError
            If the job is not running.
        """
        if serial not in self.running:
            raise SchedulerError(f"found no running job {serial}, expected one of the {len(self.running)} that run")
        run = self.running.pop(serial)
        self.cluster.release(run.allocation)
        self._charge(run, -1)
        self._more_room()
        return run

    def down(self, machine: int) -> list[Running]:
        """Mark a machine as down, stop all gangs with an instance on it, and return their runs."""
        self.cluster.down(machine)
        hit = [run for run in self.running.values() if any(at == machine for at, _ in run.allocation.counts)]
        for run in hit:
            self.stop(run.waiting.serial)
        self._room = None
        return hit

    def up(self, machine: int) -> None:
        """Undo one call of `down` for a machine."""
        self.cluster.up(machine)
        self._more_room()

    def state(self) -> QueueState:
        """Return the state that queue policies read: the same object until a job starts or stops."""
        if self._state is None:
            self._state = QueueState(dominant_share=MappingProxyType(self._shares))
        return self._state

    def _more_room(self) -> None:
        self._room = None
        self._blocked.clear()

    def _charge(self, run: Running, sign: int) -> None:
        """Add (`sign` 1) or subtract (-1) a gang's demand in its user's total; drop users without running gangs."""
        demand, user = run.allocation.demand, run.waiting.user
        count = sign * demand.instances
        held = [had + count * units for had, units in zip(self._held.get(user, (0, 0, 0)), demand.units, strict=True)]
        self._state = None
        if any(held):
            self._held[user] = held
            self._shares[user] = max(has / most for has, most in zip(held, self._total, strict=True))
        else:
            self._held.pop(user, None)
            self._shares.pop(user, None)

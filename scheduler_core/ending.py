"""When running jobs end and waiting jobs start, as expected: which runs must end before a gang fits, and start times.

Reads a `rounds.Scheduler` or free capacity without changing it. Called by `pending` and `changes`.
"""

import math
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Final

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.devices import shape
from scheduler_core.gangs import GPUS, Running
from scheduler_core.rounds import Scheduler

MOST_ENDS: Final = 256
"""Number of times at which `expected_starts_s` tries to start the waiting jobs, without the ends of those it starts."""


def freeing(demand: Demand, room: Room, running: Sequence[Running], now_s: float) -> list[Running]:
    """Return the runs that must end before a gang fits, empty if it would not fit even then.

    Runs end in order of expected end until the gang fits. Those whose end the gang does not need are then left out.
    """
    tally, ended = _Tally(demand, room), []
    for run in sorted(running, key=lambda run: max(now_s, run.expected_end_s)):
        if tally.hosted >= demand.instances:
            break
        ended.append(run)
        tally.move(run.allocation, 1)
    if tally.hosted < demand.instances:
        return []
    needed = []
    for run in ended:
        tally.move(run.allocation, -1)
        if tally.hosted < demand.instances:
            tally.move(run.allocation, 1)
            needed.append(run)
    return needed


class _Tally:
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


def expected_starts_s(scheduler: Scheduler, serials: Collection[int], now_s: float) -> dict[int, float]:
    """Return the times at which queued jobs are expected to start, by serial; inf if unknown.

    Runs end as expected, and waiting jobs start as soon as they fit, tried in queue order. It assumes no further
    arrivals, no preemption, and that machines that are down stay down. With more than `MOST_ENDS` runs, several ends
    count as one, at the latest of them, so a start may be expected later than a step by step simulation would.
    """
    ranked = [job for _, _, job in scheduler.queue.ranked(now_s)]
    last = max((at for at, job in enumerate(ranked) if job.serial in serials), default=-1)
    waiting, at_s, found = ranked[: last + 1], now_s, dict.fromkeys(serials, math.inf)
    room, place = scheduler.occupancy.room, scheduler.place
    ends = [(max(now_s, run.expected_end_s), run.allocation) for run in scheduler.occupancy.running.values()]
    ends = [each for each in ends if math.isfinite(each[0])]
    together = -(-len(ends) // MOST_ENDS)
    while True:
        refused: set[Demand] = set()
        for job in waiting.copy():
            fits = job.demand not in refused and room.fits(job.demand)
            allocation = place(job.demand, room) if fits else None
            if allocation is None:
                refused.add(job.demand)
                continue
            waiting.remove(job)
            found[job.serial] = at_s
            room = room.without([allocation])
            if math.isfinite(job.expected_s):
                ends.append((at_s + job.expected_s, allocation))
        if not ends or not any(job.serial in serials for job in waiting):
            return {serial: found[serial] for serial in serials}
        ends.sort(key=itemgetter(0))
        at_s = ends[min(together, len(ends)) - 1][0]
        room = room.with_(allocation for end_s, allocation in ends if end_s <= at_s)
        ends = [(end_s, allocation) for end_s, allocation in ends if end_s > at_s]

"""When running jobs end and waiting jobs start, as expected: which runs must end before a gang fits, and start times.

Reads a `rounds.Scheduler` or free capacity without changing it. Called by `pending` and `changes`.
"""

import math
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Final

from scheduler_core.cluster import Demand, Room
from scheduler_core.gangs import Running
from scheduler_core.occupancy import Tally
from scheduler_core.rounds import Scheduler

MOST_ENDS: Final = 256
"""Number of times at which `expected_starts_s` tries to start the waiting jobs, without the ends of those it starts."""


def freeing(demand: Demand, room: Room, running: Sequence[Running], now_s: float) -> list[Running]:
    """Return the runs that must end before a gang fits, empty if it would not fit even then.

    Runs end in order of expected end until the gang fits. Those whose end the gang does not need are then left out.
    """
    tally, ended = Tally(demand, room), []
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

"""EASY backfill: what the head of the queue is promised, and what room that leaves to those behind it.

The walk itself is in `rounds`; run times are predicted ones, so a promise is as good as they are.
Called by `rounds` and `pending`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from scheduler_core.cluster import Allocation, Room
from scheduler_core.gangs import Running, Waiting
from scheduler_core.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the head is promised: machines of its own at `shadow_s`; `spare` is what is free beside them then.

    Where no end of a running job lets it start (machines are away), nobody is held back for it: `reserved` is None.
    """

    serial: int
    shadow_s: float
    reserved: Allocation | None
    spare: Room


def promised(head: Waiting, running: Iterable[Running], room: Room, place: Placement, now_s: float) -> Promise:
    """Give back what running jobs hold, by their predicted ends, until the head fits.

    `running` is in the order of starts; runs of one expected end give back together, and those past theirs are
    expected to end now.

    References
    ----------
    Lifka: The ANL/IBM SP Scheduling System, JSSPP 1995; Mu'alem, Feitelson: Utilization, Predictability, Workloads,
    and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling, IEEE TPDS 2001 (EASY).
    """

    def end_s(run: Running) -> float:
        return max(now_s, run.expected_end_s)

    freed = room
    for shadow_s, ending in groupby(sorted(running, key=end_s), key=end_s):
        freed = freed.with_(run.allocation for run in ending)
        reserved = place(head.demand, freed) if freed.fits(head.demand) else None
        if reserved is not None:
            return Promise(serial=head.serial, shadow_s=shadow_s, reserved=reserved, spare=freed.without([reserved]))
    return Promise(serial=head.serial, shadow_s=math.inf, reserved=None, spare=room)

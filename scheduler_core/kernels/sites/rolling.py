"""The rolling plan: by earliest due date, give each waiting job its best start within a day, on forecast room.

Called by `deciding`; planned anew in every step.
"""

from typing import Final

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.sites.value import DAY, STEPS_PER_H, WAIT, Jobs, Outlook, gain_usd, latest_wait
from scheduler_core.types import FloatArray, IntArray

HOURS: Final = 48
"""Hours for which room is planned; a job that runs on beyond them is not checked further."""


@kernel
def fits(room: IntArray, site: int, gpus: int, begin_h: int, hours: int) -> bool:
    """Return whether a site has planned room for GPUs during hours of the plan."""
    for hour in range(begin_h, min(begin_h + hours, HOURS)):  # noqa: SIM110 - numba has no generators
        if room[site, hour] < gpus:
            return False
    return True


@kernel
def take(room: IntArray, site: int, gpus: int, begin_h: int, hours: int) -> None:
    """Subtract GPUs from the planned room of a site."""
    for hour in range(begin_h, min(begin_h + hours, HOURS)):
        room[site, hour] -= gpus


@kernel
def plan_one(jobs: Jobs, seen: Outlook, now: int, job: int, room: IntArray, params: FloatArray) -> int:
    """Plan a job's start; return its site if the start is now, else `WAIT`.

    `params` are patience, the share of a job's worth that a day of waiting costs, and the bid price, the share of its
    worth that its gain must exceed. A start now needs free GPUs, a later one planned `room` (S, HOURS).
    """
    gpus, steps = jobs.gpus[job], jobs.steps[job]
    hours = -(-steps // STEPS_PER_H)
    worth = seen.worth_usd * gpus * steps
    best, found, begin_h = params[1] * worth, WAIT, 0
    for site in range(len(seen.free)):
        if gpus > seen.capacity[site]:
            continue
        for after_h in range(latest_wait(jobs, now, job) // STEPS_PER_H + 1):
            after = after_h * STEPS_PER_H
            gain = gain_usd(jobs, seen, now, job, site, after) - params[0] * worth * after / DAY
            if gain <= best or (after == 0 and seen.free[site] < gpus):
                continue
            if fits(room, site, gpus, after_h, hours):
                best, found, begin_h = gain, site, after_h
    if found == WAIT:
        return WAIT
    take(room, found, gpus, begin_h, hours)
    return found if begin_h == 0 else WAIT

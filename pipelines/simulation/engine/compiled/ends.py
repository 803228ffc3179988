"""Ends to come: a binary heap of the running runs by planned end and start order, from which any run can be removed.

Each job knows where its run is in the heap. Called by `moments`, `starts`, `backfill` and `preemption`.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import Log, Records


@kernel
def _earlier(ends: Records, one: int, other: int) -> bool:
    mine, theirs = ends[one].end_s, ends[other].end_s
    return bool(mine < theirs or (mine == theirs and ends[one].run < ends[other].run))


@kernel
def _swapped(log: Log, jobs: Records, one: int, other: int) -> None:
    ends = log.ends
    end_s, run = ends[one].end_s, ends[one].run
    ends[one].end_s = ends[other].end_s
    ends[one].run = ends[other].run
    ends[other].end_s = end_s
    ends[other].run = run
    jobs[log.runs[ends[one].run].job].place = one
    jobs[log.runs[run].job].place = other


@kernel
def _risen(log: Log, jobs: Records, place: int) -> int:
    """Move an entry up to where it belongs, and return its place."""
    while place > 0 and _earlier(log.ends, place, (place - 1) // 2):
        _swapped(log, jobs, place, (place - 1) // 2)
        place = (place - 1) // 2
    return place


@kernel
def _sunk(log: Log, jobs: Records, place: int, count: int) -> None:
    """Move an entry down to where it belongs among the first `count`."""
    while True:
        child = 2 * place + 1
        if child >= count:
            return
        if child + 1 < count and _earlier(log.ends, child + 1, child):
            child += 1
        if not _earlier(log.ends, child, place):
            return
        _swapped(log, jobs, place, child)
        place = child


@kernel
def put_end(log: Log, jobs: Records, count: int, run: int) -> None:
    """Add a run to the `count` that are there."""
    log.ends[count].end_s = log.runs[run].end_s
    log.ends[count].run = run
    jobs[log.runs[run].job].place = count
    _risen(log, jobs, count)


@kernel
def take_end(log: Log, jobs: Records, count: int, place: int) -> None:
    """Remove the run at a place of the `count` that are there."""
    last = count - 1
    if place != last:
        _swapped(log, jobs, place, last)
        _sunk(log, jobs, _risen(log, jobs, place), last)

"""Two binary min-heaps: entries sorted by (value, tie), and current runs sorted by (planned end, run number).

Any run can be removed from the heap of runs, because each job stores the index of its run in the heap.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import Records
from scheduler_core.kernels.state import Log


@kernel
def sooner(entries: Records, one: int, other: int) -> bool:
    """Return whether the entry at index `one` goes before the entry at index `other`."""
    mine, theirs = entries[one].value, entries[other].value
    return bool(mine < theirs or (mine == theirs and entries[one].tie < entries[other].tie))


@kernel
def swapped(entries: Records, one: int, other: int) -> None:
    """Swap the entries at two indices of a heap."""
    value, tie, what = entries[one].value, entries[one].tie, entries[one].what
    entries[one].value = entries[other].value
    entries[one].tie = entries[other].tie
    entries[one].what = entries[other].what
    entries[other].value = value
    entries[other].tie = tie
    entries[other].what = what


@kernel
def sunk(entries: Records, place: int, count: int) -> None:
    """Move the entry at index `place` down until the heap of the first `count` entries is in order again."""
    value, tie, what = entries[place].value, entries[place].tie, entries[place].what
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and sooner(entries, child + 1, child):
            child += 1
        if value < entries[child].value or (value == entries[child].value and tie <= entries[child].tie):
            break
        entries[place] = entries[child]
        place = child
    entries[place].value = value
    entries[place].tie = tie
    entries[place].what = what


@kernel
def risen(entries: Records, place: int) -> None:
    """Move the entry at index `place` up until the heap is in order again."""
    while place > 0 and sooner(entries, place, (place - 1) // 2):
        swapped(entries, place, (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def heaped(entries: Records, count: int) -> None:
    """Reorder the first `count` entries so that they form a heap."""
    for place in range(count // 2 - 1, -1, -1):
        sunk(entries, place, count)


@kernel
def popped(entries: Records, count: int) -> int:
    """Remove the smallest entry from a heap of `count` entries: move it to index `count` - 1, and return that index."""
    swapped(entries, 0, count - 1)
    sunk(entries, 0, count - 1)
    return count - 1


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
    """Move the run at index `place` up until the heap is in order again; return its new index."""
    while place > 0 and _earlier(log.ends, place, (place - 1) // 2):
        _swapped(log, jobs, place, (place - 1) // 2)
        place = (place - 1) // 2
    return place


@kernel
def _sunk(log: Log, jobs: Records, place: int, count: int) -> None:
    """Move the run at index `place` down until the heap of the first `count` runs is in order again."""
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
    """Add a run to the heap of current runs, which holds `count` runs."""
    log.ends[count].end_s = log.runs[run].end_s
    log.ends[count].run = run
    jobs[log.runs[run].job].place = count
    _risen(log, jobs, count)


@kernel
def take_end(log: Log, jobs: Records, count: int, place: int) -> None:
    """Remove the run at index `place` from the heap of current runs, which holds `count` runs."""
    last = count - 1
    if place != last:
        _swapped(log, jobs, place, last)
        _sunk(log, jobs, _risen(log, jobs, place), last)

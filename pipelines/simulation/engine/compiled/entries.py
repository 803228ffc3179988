"""Entries: a heap of things by a value and, where values are equal, a tie; smallest first.

Called by `offers` (buckets by key and serial), `backfill` (runs by expected end) and `preemption` (runs by key).
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import Records


@kernel
def _sooner(entries: Records, one: int, other: int) -> bool:
    mine, theirs = entries[one].value, entries[other].value
    return bool(mine < theirs or (mine == theirs and entries[one].tie < entries[other].tie))


@kernel
def swapped(entries: Records, one: int, other: int) -> None:
    """Let two entries change places."""
    value, tie, what = entries[one].value, entries[one].tie, entries[one].what
    entries[one].value = entries[other].value
    entries[one].tie = entries[other].tie
    entries[one].what = entries[other].what
    entries[other].value = value
    entries[other].tie = tie
    entries[other].what = what


@kernel
def sunk(entries: Records, place: int, count: int) -> None:
    """Move an entry down to where it belongs among the first `count`."""
    while True:
        child = 2 * place + 1
        if child >= count:
            return
        if child + 1 < count and _sooner(entries, child + 1, child):
            child += 1
        if not _sooner(entries, child, place):
            return
        swapped(entries, place, child)
        place = child


@kernel
def risen(entries: Records, place: int) -> None:
    """Move an entry up to where it belongs."""
    while place > 0 and _sooner(entries, place, (place - 1) // 2):
        swapped(entries, place, (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def heaped(entries: Records, count: int) -> None:
    """Make a heap of the first `count`."""
    for place in range(count // 2 - 1, -1, -1):
        sunk(entries, place, count)


@kernel
def popped(entries: Records, count: int) -> int:
    """Move the smallest of a heap of `count` to its last place, which is returned, out of the heap."""
    swapped(entries, 0, count - 1)
    sunk(entries, 0, count - 1)
    return count - 1

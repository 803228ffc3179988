"""Picks: runs in the order of a number each has at a moment, smallest first; a heap that is built once and emptied.

Called by `backfill` (by expected end) and `preemption` (by key).
"""

from scheduler_core.compiled.kernel import kernel
from scheduler_core.compiled.state import Records


@kernel
def _less(picks: Records, one: int, other: int) -> bool:
    mine, theirs = picks[one].value, picks[other].value
    return bool(mine < theirs or (mine == theirs and picks[one].tie < picks[other].tie))


@kernel
def _swapped(picks: Records, one: int, other: int) -> None:
    value, tie, run = picks[one].value, picks[one].tie, picks[one].run
    picks[one].value = picks[other].value
    picks[one].tie = picks[other].tie
    picks[one].run = picks[other].run
    picks[other].value = value
    picks[other].tie = tie
    picks[other].run = run


@kernel
def _sunk(picks: Records, place: int, count: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= count:
            return
        if child + 1 < count and _less(picks, child + 1, child):
            child += 1
        if not _less(picks, child, place):
            return
        _swapped(picks, place, child)
        place = child


@kernel
def heaped(picks: Records, count: int) -> None:
    """Make a heap of the first `count`."""
    for place in range(count // 2 - 1, -1, -1):
        _sunk(picks, place, count)


@kernel
def popped(picks: Records, count: int) -> int:
    """Move the smallest of a heap of `count` to its last place, which is returned, out of the heap."""
    _swapped(picks, 0, count - 1)
    _sunk(picks, 0, count - 1)
    return count - 1

"""Binary min-heaps of entries, sorted by (value, tie)."""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import Records


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
def pushed(entries: Records, count: int, value: float, tie: int, what: int) -> None:
    """Add an entry to a heap of `count` entries."""
    entries[count].value = value
    entries[count].tie = tie
    entries[count].what = what
    risen(entries, count)


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

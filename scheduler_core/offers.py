"""The line offered once: each job with the place it would get now, a long line's many at a time.

Who starts, and who may pass whom, is in `rounds`; how one gang is placed is in `placement`.
Called by `rounds`.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from scheduler_core.cluster import Allocation
from scheduler_core.line import Entry
from scheduler_core.occupancy import Occupancy

MANY: Final = 5000
"""Waiting jobs from which on a round looks ahead. Fewer take a fifth of a second one by one; compiled code costs a
process half a second once, and a machine that never ran it five."""

FIRST: Final = 64
MOST: Final = 4096
"""Jobs looked at ahead, first and at most: rounds that stop early have looked at few in vain."""

FEWEST: Final = 32
"""Gangs that are placed at once; setting it up costs as much as placing a few one by one."""


class Offers:
    """Jobs in order, each with its place or None; whoever goes through them starts those that have one.

    With a placement's name they are placed ahead by the compiled walk, as if each that fits had been started: right as
    long as nothing else starts or stops meanwhile, and the order does not change. Else one by one.
    """

    def __init__(self, offered: Iterator[Entry], occupancy: Occupancy, ahead: str | None = None) -> None:
        self._offered = offered
        self._occupancy = occupancy
        self._ahead = ahead
        self._next: deque[Entry] = deque()

    def __iter__(self) -> Iterator[tuple[Entry, Allocation | None]]:
        """Yield the jobs and their places."""
        if self._ahead is None:
            return ((entry, self._occupancy.placed(entry[2].demand)) for entry in self._offered)
        return self._looking_ahead(self._ahead)

    def rest(self) -> Iterator[Entry]:
        """Return the jobs that were not yielded, without places."""
        return chain(self._next, self._offered)

    def _looking_ahead(self, placement: str) -> Iterator[tuple[Entry, Allocation | None]]:
        size = FIRST
        while entries := list(islice(self._offered, size)):
            self._next.extend(entries)
            fresh = [not self._occupancy.is_blocked(job.demand) for _, _, job in entries]
            places = self._placed(entries, fresh, placement) if sum(fresh) >= FEWEST else None
            for entry, is_fresh in zip(entries, fresh, strict=True):
                self._next.popleft()
                if places is None:
                    yield entry, self._occupancy.placed(entry[2].demand)
                else:
                    yield entry, next(places) if is_fresh else None
            size = min(4 * size, MOST)

    def _placed(self, entries: list[Entry], fresh: list[bool], placement: str) -> Iterator[Allocation | None]:
        """Place those not known to be blocked, and know those that are by the time they are asked for."""
        # Importing numba costs half a second: only who has many jobs pays for it.
        from scheduler_core.kernels.ordered import place_in_order

        demands = [entry[2].demand for entry, is_fresh in zip(entries, fresh, strict=True) if is_fresh]
        for demand, allocation in zip(
            demands, place_in_order(demands, self._occupancy.cluster, placement), strict=True
        ):
            if allocation is None:
                self._occupancy.block(demand)
            yield allocation

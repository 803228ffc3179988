"""The line before a cluster: waiting jobs in the order of one policy.

Keys are in `queueing`; who starts is decided in `rounds`.
Called by `rounds` and `pending`.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice
from typing import Final

from scheduler_core.cluster import Allocation
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting
from scheduler_core.occupancy import Occupancy
from scheduler_core.queueing import QueuePolicy, QueueState

Entry = tuple[float, int, Waiting]
"""A place in the line: key, serial, job."""

NOTHING_HELD: Final = QueueState()


REBUILD_SHARE: Final = 1000
"""One in so many that leave are taken out one by one; a larger part of the line is left out of a new list at once."""


class JobQueue:
    """Waiting jobs in a list, sorted by their keys: by those when nobody holds anything where keys are by user.

    Joining and leaving cost a search and moving the list's tail: some 10 us in a line of 100 000. Under a dynamic
    policy jobs are ranked whenever asked, and anew after every start: by a heap of users where its keys are by user, so
    that a round costs (jobs + starts) log(users), else all of them.

    `state` tells what the policy may look at besides the job: the same object until it has changed.
    """

    def __init__(self, policy: QueuePolicy, state: Callable[[], QueueState]) -> None:
        self._policy = policy
        self._state = state
        self._entries: list[Entry] = []
        self._keys: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        """Go through the jobs, in no promised order."""
        return (job for _, _, job in self._entries)

    def join(self, job: Waiting) -> None:
        """Queue a job where its key puts it."""
        ordered = self._policy.by_user or not self._policy.dynamic
        key = self._keys[job.serial] = self.key(job, job.arrived_s) if ordered else 0.0
        insort(self._entries, (key, job.serial, job))

    def leave(self, serials: Collection[int]) -> None:
        """Take jobs out that are in the line."""
        keys = {serial: self._keys.pop(serial) for serial in serials}
        if len(keys) * REBUILD_SHARE > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[1] not in keys]
            return
        for serial, key in keys.items():
            # The pair sorts right before the triple that it begins.
            del self._entries[bisect_left(self._entries, (key, serial))]

    def key(self, job: Waiting, now_s: float, state: QueueState = NOTHING_HELD) -> float:
        """Return a job's key, which orders; a static policy looks at no state.

        Raises
        ------
        BadInput
            If the policy says NaN.
        """
        key = self._policy.key(job, state, now_s)
        if math.isnan(key):
            raise BadInput(f"queue policy: found the key NaN for job {job.serial}, expected a number that orders")
        return key

    def ranked(self, now_s: float) -> list[Entry]:
        """Return the line in order, as of now."""
        return self._rank(self._entries, now_s, self._state()) if self._policy.dynamic else self._entries.copy()

    def offered(self, now_s: float) -> Iterator[Entry]:
        """Yield the line in order; under a dynamic policy those left are ranked anew whenever its state has changed."""
        if not self._policy.dynamic:
            return iter(self._entries.copy())
        return self._by_users(now_s) if self._policy.by_user else self._anew(now_s)

    def _by_users(self, now_s: float) -> Iterator[Entry]:
        """Yield the first job of the user who is first, then of who is first after that."""
        waiting: dict[Hashable, deque[Entry]] = defaultdict(deque)
        for entry in self._entries:
            waiting[entry[2].user].append(entry)
        state = self._state()
        heap = [(self.key(jobs[0][2], now_s, state), jobs[0][1], user) for user, jobs in waiting.items()]
        heapify(heap)
        while heap:
            # Only what this user holds can change before the next is asked for: the others' keys stay true.
            key, serial, user = heap[0]
            jobs = waiting[user]
            yield key, serial, jobs.popleft()[2]
            if jobs:
                heapreplace(heap, (self.key(jobs[0][2], now_s, self._state()), jobs[0][1], user))
            else:
                heappop(heap)

    def _anew(self, now_s: float) -> Iterator[Entry]:
        """Yield the line in order, all that are left ranked anew whenever the state has changed."""
        left = self._entries
        while left:
            state = self._state()
            ranked, left = self._rank(left, now_s, state), []
            for at, entry in enumerate(ranked):
                yield entry
                if self._state() is not state:
                    left = ranked[at + 1 :]
                    break

    def _rank(self, entries: list[Entry], now_s: float, state: QueueState) -> list[Entry]:
        return sorted((self.key(job, now_s, state), serial, job) for _, serial, job in entries)


LOOK_AHEAD_JOBS: Final = 5000
"""Waiting jobs from which on a round looks ahead. Fewer take a fifth of a second one by one; compiled code costs a
process half a second once, and a machine that never ran it five."""

FIRST_BATCH: Final = 64
LARGEST_BATCH: Final = 4096
"""Jobs looked at ahead, first and at most: rounds that stop early have looked at few in vain."""

SMALLEST_BATCH: Final = 32
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
        size = FIRST_BATCH
        while entries := list(islice(self._offered, size)):
            self._next.extend(entries)
            fresh = [not self._occupancy.is_blocked(job.demand) for _, _, job in entries]
            places = self._placed(entries, fresh, placement) if sum(fresh) >= SMALLEST_BATCH else None
            for entry, is_fresh in zip(entries, fresh, strict=True):
                self._next.popleft()
                if places is None:
                    yield entry, self._occupancy.placed(entry[2].demand)
                else:
                    yield entry, next(places) if is_fresh else None
            size = min(4 * size, LARGEST_BATCH)

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

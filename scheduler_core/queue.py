"""The queue of a scheduler: waiting jobs in the order of one policy, each offered with the allocation it would get.

`queue_policies` defines the keys that order jobs, `rounds` decides which offered jobs start, `placement` places a gang.
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
from scheduler_core.queue_policies import QueuePolicy, QueueState

Entry = tuple[float, int, Waiting]
"""An entry of the queue: sort key, serial and job."""

NOTHING_HELD: Final = QueueState()


REBUILD_SHARE: Final = 1000
"""The list is rebuilt if more than 1 / REBUILD_SHARE of the jobs leave at once, else jobs are deleted singly."""


class JobQueue:
    """The waiting jobs, in a list sorted by queue key.

    Inserting or deleting a job takes some 10 us in a queue of 100 000 jobs. Under a dynamic policy, jobs are ranked
    again after every start. If the policy is `by_user`, the list is sorted by the keys on an idle cluster, and a heap
    of users ranks them in O((jobs + starts) * log(users)) per round; otherwise all jobs are sorted again.

    `state` is a function that returns the state for the policy; it must return the same object until that changes.
    """

    def __init__(self, policy: QueuePolicy, state: Callable[[], QueueState]) -> None:
        self._policy = policy
        self._state = state
        self._entries: list[Entry] = []
        self._keys: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        """Return an iterator over the jobs, in no particular order."""
        return (job for _, _, job in self._entries)

    def join(self, job: Waiting) -> None:
        """Insert a job at the position of its key."""
        ordered = self._policy.by_user or not self._policy.dynamic
        key = self._keys[job.serial] = self.key(job, job.arrived_s) if ordered else 0.0
        insort(self._entries, (key, job.serial, job))

    def leave(self, serials: Collection[int]) -> None:
        """Remove jobs by serial; all must be in the queue."""
        keys = {serial: self._keys.pop(serial) for serial in serials}
        if len(keys) * REBUILD_SHARE > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[1] not in keys]
            return
        for serial, key in keys.items():
            # The pair (key, serial) sorts directly before the entry (key, serial, job).
            del self._entries[bisect_left(self._entries, (key, serial))]

    def key(self, job: Waiting, now_s: float, state: QueueState = NOTHING_HELD) -> float:
        """Return a job's sort key; `state` matters only to dynamic policies.

        Raises
        ------
        BadInput
            If the policy returns NaN.
        """
        key = self._policy.key(job, state, now_s)
        if math.isnan(key):
            raise BadInput(f"queue policy: found the key NaN for job {job.serial}, expected a number")
        return key

    def ranked(self, now_s: float) -> list[Entry]:
        """Return all entries of the queue in their order at `now_s`."""
        return self._rank(self._entries, now_s, self._state()) if self._policy.dynamic else self._entries.copy()

    def offered(self, now_s: float) -> Iterator[Entry]:
        """Return an iterator over the queue in order; a dynamic policy ranks jobs again when the state changes."""
        if not self._policy.dynamic:
            return iter(self._entries.copy())
        return self._by_users(now_s) if self._policy.by_user else self._anew(now_s)

    def _by_users(self, now_s: float) -> Iterator[Entry]:
        """Yield the queue in order under a `by_user` policy: next is the first job of the user with the least key."""
        waiting: dict[Hashable, deque[Entry]] = defaultdict(deque)
        for entry in self._entries:
            waiting[entry[2].user].append(entry)
        state = self._state()
        heap = [(self.key(jobs[0][2], now_s, state), jobs[0][1], user) for user, jobs in waiting.items()]
        heapify(heap)
        while heap:
            # Until the next entry only this user's share can change, so the keys of other users stay valid.
            key, serial, user = heap[0]
            jobs = waiting[user]
            yield key, serial, jobs.popleft()[2]
            if jobs:
                heapreplace(heap, (self.key(jobs[0][2], now_s, self._state()), jobs[0][1], user))
            else:
                heappop(heap)

    def _anew(self, now_s: float) -> Iterator[Entry]:
        """Yield the queue in order, and sort the remaining jobs again whenever the state changes."""
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
"""Minimum queue length for which a round places jobs in batches by compiled code.

Placing fewer jobs one by one takes a fifth of a second. Loading the compiled code takes half a second per process, and
five seconds if it is not cached.
"""

FIRST_BATCH: Final = 64
LARGEST_BATCH: Final = 4096
"""Maximum number of jobs in a batch; the first batch has FIRST_BATCH jobs, each later one four times as many."""

SMALLEST_BATCH: Final = 32
"""Minimum number of gangs to place as a batch; preparing a batch takes as long as placing a few one by one."""


class Offers:
    """Queued jobs in order, each with its allocation, or None if it does not fit; the caller starts those with one.

    If `ahead` names a placement, compiled code places batches of jobs, assuming that each job that fits starts, nothing
    else starts or stops, and the queue order stays the same. If `ahead` is None, jobs are placed one by one.
    """

    def __init__(self, offered: Iterator[Entry], occupancy: Occupancy, ahead: str | None = None) -> None:
        self._offered = offered
        self._occupancy = occupancy
        self._ahead = ahead
        self._next: deque[Entry] = deque()

    def __iter__(self) -> Iterator[tuple[Entry, Allocation | None]]:
        """Return an iterator over the jobs with their allocations."""
        if self._ahead is None:
            return ((entry, self._occupancy.placed(entry[2].demand)) for entry in self._offered)
        return self._looking_ahead(self._ahead)

    def rest(self) -> Iterator[Entry]:
        """Return an iterator over the jobs not yet yielded, without allocations."""
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
        """Place the entries that are not blocked, and mark those that do not fit as blocked."""
        # Import numba only for long queues, since that takes half a second.
        from scheduler_core.kernels.ordered import place_in_order

        demands = [entry[2].demand for entry, is_fresh in zip(entries, fresh, strict=True) if is_fresh]
        for demand, allocation in zip(
            demands, place_in_order(demands, self._occupancy.cluster, placement), strict=True
        ):
            if allocation is None:
                self._occupancy.block(demand)
            yield allocation

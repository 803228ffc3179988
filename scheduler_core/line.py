"""The line before a cluster: waiting jobs in the order of one policy.

Keys are in `queueing`; who starts is decided in `rounds`.
Called by `rounds` and `pending`.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Final

from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting
from scheduler_core.queueing import QueuePolicy, QueueState

Entry = tuple[float, int, Waiting]
"""A place in the line: key, serial, job."""

NOTHING_HELD: Final = QueueState()


FEW: Final = 1000
"""One in so many that leave are taken out one by one; a larger part of the line is left out of a new list at once."""


class Line:
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
        if len(keys) * FEW > len(self._entries):
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

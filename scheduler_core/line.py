"""The line before a cluster: waiting jobs in the order of one policy.

Keys are in `queueing`; who starts is decided in `rounds`.
Called by `rounds` and `pending`.
"""

import math
from bisect import insort
from collections.abc import Callable, Collection, Iterator
from typing import Final

from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting
from scheduler_core.queueing import QueuePolicy, QueueState

Entry = tuple[float, int, Waiting]
"""A place in the line: key, serial, job."""

NOTHING_HELD: Final = QueueState()


class Line:
    """Waiting jobs, sorted as they come under a static policy, ranked whenever asked under a dynamic one.

    `state` tells what the policy may look at besides the job: the same object until it has changed.
    """

    def __init__(self, policy: QueuePolicy, state: Callable[[], QueueState]) -> None:
        self._policy = policy
        self._state = state
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        """Go through the jobs, in no promised order."""
        return (job for _, _, job in self._entries)

    def join(self, job: Waiting) -> None:
        """Queue a job where its key puts it."""
        key = 0.0 if self._policy.dynamic else self.key(job, job.arrived_s)
        insort(self._entries, (key, job.serial, job))

    def leave(self, serials: Collection[int]) -> None:
        """Take jobs out."""
        if serials:
            self._entries = [entry for entry in self._entries if entry[1] not in serials]

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
        return self._rank(self._entries, now_s, self._state())

    def offered(self, now_s: float) -> Iterator[Entry]:
        """Yield the line in order; under a dynamic policy those left are ranked anew whenever its state has changed."""
        left = self._entries
        while left:
            state = self._state() if self._policy.dynamic else NOTHING_HELD
            ranked, left = self._rank(left, now_s, state), []
            for at, entry in enumerate(ranked):
                yield entry
                if self._policy.dynamic and self._state() is not state:
                    left = ranked[at + 1 :]
                    break

    def _rank(self, entries: list[Entry], now_s: float, state: QueueState) -> list[Entry]:
        if not self._policy.dynamic:
            return entries.copy()
        return sorted((self.key(job, now_s, state), serial, job) for _, serial, job in entries)

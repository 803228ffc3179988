"""Preemption: which running jobs to stop for a waiting job.

`queueing` decides whether a discipline preempts; `rounds` stops and starts the jobs. Called by `rounds`.
"""

from collections.abc import Iterable, Sequence

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.gangs import Running


def victims(demand: Demand, key: float, running: Sequence[tuple[float, Running]], room: Room) -> list[Running]:
    """Return the runs to stop so that a waiting gang fits, largest key first; empty if no choice of runs suffices.

    `running` holds pairs of queue key and preemptible run, largest key first. Only runs with larger keys than `key`,
    the waiting job's, may be stopped. They are added one by one until the gang fits. Then runs that the gang does not
    need are removed again, smallest key first.

    References
    ----------
    Gu et al.: Tiresias, NSDI 2019 (whole deep-learning gangs are preempted through checkpoints).
    """
    stopped: list[Running] = []
    freed = room
    for run_key, run in running:
        if run_key <= key:
            return []
        stopped.append(run)
        freed = freed.with_([run.allocation])
        if freed.fits(demand):
            break
    else:
        return []
    for run in reversed(stopped.copy()):
        without = freed.without([run.allocation])
        if without.fits(demand):
            stopped.remove(run)
            freed = without
    return stopped


class Stoppable:
    """The preemptible runs of a round, and the capacity that would be free if all of them were stopped.

    Waiting jobs come with ascending keys. So runs whose keys are not larger than the current job's are dropped, and a
    demand that did not fit for one job cannot fit for a later one.
    """

    def __init__(self, keyed: Iterable[tuple[float, Running]], room: Room) -> None:
        self._largest_first = sorted(keyed, key=lambda entry: (entry[0], entry[1].waiting.serial), reverse=True)
        self._reachable = room.with_(run.allocation for _, run in self._largest_first)
        self._unreachable: set[Demand] = set()

    def __len__(self) -> int:
        return len(self._largest_first)

    def victims(self, demand: Demand, key: float, room: Room) -> list[Running]:
        """Return the runs to stop so that a gang fits, as the function `victims` does."""
        while self._largest_first and self._largest_first[-1][0] <= key:
            _, spared = self._largest_first.pop()
            self._reachable = self._reachable.without([spared.allocation])
        if not self._largest_first or demand in self._unreachable:
            return []
        if not self._reachable.fits(demand):
            self._unreachable.add(demand)
            return []
        return victims(demand, key, self._largest_first, room)

    def stopped(self, runs: Iterable[Running]) -> None:
        """Remove runs that were stopped; the reachable capacity already includes what they held."""
        gone = {run.waiting.serial for run in runs}
        self._largest_first = [entry for entry in self._largest_first if entry[1].waiting.serial not in gone]

    def taken(self, allocation: Allocation) -> None:
        """Subtract the allocation of a run started in this round, since such a run is not preemptible."""
        if self._largest_first:
            self._reachable = self._reachable.without([allocation])

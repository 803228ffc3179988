"""Preemption: whether a discipline stops running jobs, and which ones make room for a waiting one.

What a stopped job loses and when it goes on is in `gangs` and `rounds`.
Called by `rounds` and `simulator`.
"""

from collections.abc import Iterable, Sequence

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.discipline import Discipline
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Running
from scheduler_core.queueing import policy_of


def preempts(discipline: Discipline) -> bool:
    """Return whether waiting jobs may stop running ones: as asked, else as the policy declares.

    Raises
    ------
    BadInput
        If it would, together with a dynamic policy, an overtakes bound or backfill.

    Examples
    --------
    >>> [preempts(Discipline(policy=name)) for name in ("srtf", "sjf")]
    [True, False]
    """
    policy = policy_of(discipline.policy)
    active = policy.preemptive if discipline.preempt is None else discipline.preempt
    conflicts = {
        "a policy whose keys are dynamic (drf)": policy.dynamic,
        "overtakes": discipline.overtakes is not None,
        "backfill=easy": discipline.backfill == "easy",
    }
    for what, holds in conflicts.items():
        if active and holds:
            raise BadInput(f"discipline: found preemption together with {what}; pass preempt=False, or leave that out")
    return active


def victims(demand: Demand, key: float, running: Sequence[tuple[float, Running]], room: Room) -> list[Running]:
    """Return the runs to stop so that a gang fits, worst first; none where not even all of them make room.

    `running` pairs each run that may be stopped with its key, worst first; only those of a larger key than the job's
    are. They are given back one by one until it fits; then, from the best of them on, each one that it fits without
    goes on running.

    References
    ----------
    Gu et al.: Tiresias, NSDI 2019 (preempting deep-learning gangs, whole, through checkpoints).
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
    """The runs that may be stopped in a round, and what would be free without all that are worse than some key.

    Jobs ask for victims in order, their keys never fall: what is out of reach of one is out of reach of those behind.
    """

    def __init__(self, keyed: Iterable[tuple[float, Running]], room: Room) -> None:
        self._worst_first = sorted(keyed, key=lambda entry: (entry[0], entry[1].waiting.serial), reverse=True)
        self._reach = room.with_(run.allocation for _, run in self._worst_first)
        self._out_of_reach: set[Demand] = set()

    def __len__(self) -> int:
        return len(self._worst_first)

    def victims(self, demand: Demand, key: float, room: Room) -> list[Running]:
        """Return the runs to stop so that a gang fits, as `victims` does."""
        while self._worst_first and self._worst_first[-1][0] <= key:
            _, spared = self._worst_first.pop()
            self._reach = self._reach.without([spared.allocation])
        if not self._worst_first or demand in self._out_of_reach:
            return []
        if not self._reach.fits(demand):
            self._out_of_reach.add(demand)
            return []
        return victims(demand, key, self._worst_first, room)

    def stopped(self, runs: Iterable[Running]) -> None:
        """Know that these run no longer; what they held is in reach as before."""
        gone = {run.waiting.serial for run in runs}
        self._worst_first = [entry for entry in self._worst_first if entry[1].waiting.serial not in gone]

    def taken(self, allocation: Allocation) -> None:
        """Know that a start has taken these, and may not be stopped in this round."""
        if self._worst_first:
            self._reach = self._reach.without([allocation])

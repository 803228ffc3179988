"""Preemption: whether a discipline stops running jobs, and which jobs it stops for a waiting one.

The state of a stopped job is in `gangs`; `rounds` stops and starts jobs.
Called by `rounds` and the simulator.
"""

from collections.abc import Iterable, Sequence

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.discipline import Discipline
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Running
from scheduler_core.queueing import policy_of

__all__ = ["preempts"]


def preempts(discipline: Discipline) -> bool:
    """Return whether waiting jobs may stop running ones: by `preempt`, else by the policy's default.

    Raises
    ------
    BadInput
        If it would be combined with a dynamic policy, an overtakes bound or backfill.

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
            raise BadInput(f"discipline: found preemption together with {what}; set preempt=False, or remove the other")
    return active


def victims(demand: Demand, key: float, running: Sequence[tuple[float, Running]], room: Room) -> list[Running]:
    """Return the runs to stop so that a gang fits, largest key first; none if it would not fit even then.

    `running` pairs each preemptible run with its key, largest first; only runs with larger keys than the job's are
    stopped. Runs are released one by one until the gang fits; then, from the smallest key on, each run without which it
    still fits is kept running.

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
    """The preemptible runs of a round, and the room if all runs with larger keys than the job's were stopped.

    Jobs come in queue order, so keys never fall: a demand that does not fit for one job does not fit for later ones.
    """

    def __init__(self, keyed: Iterable[tuple[float, Running]], room: Room) -> None:
        self._largest_first = sorted(keyed, key=lambda entry: (entry[0], entry[1].waiting.serial), reverse=True)
        self._reachable = room.with_(run.allocation for _, run in self._largest_first)
        self._unreachable: set[Demand] = set()

    def __len__(self) -> int:
        return len(self._largest_first)

    def victims(self, demand: Demand, key: float, room: Room) -> list[Running]:
        """Return the runs to stop so that a gang fits, as `victims` does."""
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
        """Remove stopped runs from the preemptible ones; the reachable room includes them already."""
        gone = {run.waiting.serial for run in runs}
        self._largest_first = [entry for entry in self._largest_first if entry[1].waiting.serial not in gone]

    def taken(self, allocation: Allocation) -> None:
        """Subtract an allocation that started in this round and so is not preemptible."""
        if self._largest_first:
            self._reachable = self._reachable.without([allocation])

"""Preemption: whether a discipline stops running jobs, and which ones make room for a waiting one.

What a stopped job loses and when it goes on is in `gangs` and `rounds`.
Called by `rounds` and `simulator`.
"""

from collections.abc import Sequence

from scheduler_core.cluster import Demand, Room
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
    worse = [run for run_key, run in running if run_key > key]
    if not worse or not room.with_(run.allocation for run in worse).fits(demand):
        return []
    stopped: list[Running] = []
    freed = room
    for run in worse:
        stopped.append(run)
        freed = freed.with_([run.allocation])
        if freed.fits(demand):
            break
    for run in reversed(stopped.copy()):
        without = freed.without([run.allocation])
        if without.fits(demand):
            stopped.remove(run)
            freed = without
    return stopped

"""Queue policies: the order in which waiting jobs are offered to the cluster.

A policy is a `key(job, state, now_s)`, smallest first, static (fixed while the job waits) or dynamic (evaluated again
after every start); ties go to the earlier arrival. The queue is in `queue`, overtaking in `rounds`; both call this.

To add one: write the key and name it in `QUEUE_POLICIES`; repeat the name in `pipelines.cli.simulation`. The compiled
engine needs its own key in `pipelines.simulation.engine.compiled.starts`; without it only the engine `plain` takes it.
"""

# ruff: noqa: ARG001 -- all policies have the same signature, whichever arguments they read

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler_core.cluster import MILLI
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The state that a policy may read: the dominant share of each user with running jobs (0..1)."""

    dominant_share: Mapping[Hashable, float] = field(default_factory=dict)


Key = Callable[[Waiting, QueueState, float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """A key; whether it is evaluated again after every start; whether jobs with smaller keys preempt by default.

    A static key may change while the job runs (`srtf`, `las`), not while it waits. A dynamic one may be declared
    `by_user`: it reads the share of the job's own user only, and a larger share never gives a smaller key. Then a start
    does not reorder the jobs of other users, nor those of one user, and not all need ranking again.
    """

    key: Key
    dynamic: bool = False
    preemptive: bool = False
    by_user: bool = False


def aged(policy: QueuePolicy, aging: float) -> QueuePolicy:
    """Subtract `aging` from a job's key for every second waited.

    All keys would fall at the same rate, so the order is that of `key + aging * arrived_s`, without `now`. Linear aging
    keeps static keys static.

    >>> from scheduler_core.cluster import Demand
    >>> ONE = Demand(units=(0, 0, 1000), instances=1)
    >>> old = Waiting(serial=0, arrived_s=0.0, request=ONE, granted=ONE, predicted_s=500.0)
    >>> new = Waiting(serial=1, arrived_s=900.0, request=ONE, granted=ONE, predicted_s=60.0)
    >>> [min((old, new), key=lambda job: aged(QUEUE_POLICIES["sjf"], a).key(job, QueueState(), 0.0)).serial
    ...  for a in (0.0, 0.5)]
    [1, 0]
    """
    if aging == 0.0:
        return policy
    return replace(policy, key=lambda job, state, now_s: policy.key(job, state, now_s) + aging * job.arrived_s)


def fifo(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by arrival; a job that comes back keeps its place.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 with FIFO.
    """
    return job.arrived_s


def sjf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by predicted run time, including the part already run; a job without a prediction goes last.

    Prediction errors harm it less than `srtf`: a job that outlasts its prediction never moves to the front.

    References
    ----------
    Dell'Amico, Carra, Pastorelli, Michiardi: Revisiting Size-Based Scheduling with Estimated Job Sizes, MASCOTS 2014
    (the harm that under-estimated jobs do).
    """
    return job.predicted_s if math.isfinite(job.predicted_s) else math.inf


def srtf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by the remaining predicted run time; a job without a prediction goes last.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2, shortest remaining time first; Schrage, Miller: The Queue M/G/1 with the Shortest
    Remaining Processing Time Discipline, Operations Research 1966.
    """
    return job.remaining_s


def qssf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by predicted GPU time: predicted run time times the GPUs granted to the gang.

    References
    ----------
    Hu et al.: Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC 2021
    (quasi-shortest-service-first).
    """
    return job.predicted_s * (job.demand.milli_gpus / MILLI) if math.isfinite(job.predicted_s) else math.inf


def las(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by attained service: the GPU time of a job so far, least first; needs no prediction.

    A gang without GPUs counts as one thousandth of a GPU.

    References
    ----------
    Gu et al.: Tiresias, NSDI 2019 (two-dimensional least attained service, here without discrete queues).
    """
    return job.attained_s * max(job.demand.milli_gpus, 1) / MILLI


def drf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by the dominant share of the job's user, a gang counting as one unit.

    References
    ----------
    Ghodsi et al.: Dominant Resource Fairness, NSDI 2011: the next task is of the user with the least dominant share.
    """
    return state.dominant_share.get(job.user, 0.0)


def priority(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by priority, largest first.

    References
    ----------
    Kubernetes' PriorityClass and Slurm's multifactor priority order the same way.
    """
    return -job.priority


def policy_of(policy: str | QueuePolicy) -> QueuePolicy:
    """Return a queue policy by its name; one given by value is itself.

    Raises
    ------
    BadInput
        If no policy has that name.
    """
    if not isinstance(policy, str):
        return policy
    if policy not in QUEUE_POLICIES:
        raise BadInput(f"queue policy: found {policy!r}, expected one of {', '.join(sorted(QUEUE_POLICIES))}")
    return QUEUE_POLICIES[policy]


QUEUE_POLICIES: Final[dict[str, QueuePolicy]] = {
    "fifo": QueuePolicy(key=fifo),
    "sjf": QueuePolicy(key=sjf),
    "srtf": QueuePolicy(key=srtf, preemptive=True),
    "qssf": QueuePolicy(key=qssf),
    "las": QueuePolicy(key=las, preemptive=True),
    "drf": QueuePolicy(key=drf, dynamic=True, by_user=True),
    "priority": QueuePolicy(key=priority),
}

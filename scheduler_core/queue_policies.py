"""Queue policies: the functions by which waiting jobs are ordered.

A policy is a function `key(job, state, now_s)`; the job with the smallest key comes first, among equal keys the earlier
arrival. A static key is fixed while the job waits; a dynamic one is evaluated again after every start. `queue` keeps
jobs in this order.

To add a policy, write its key function and name it in `QUEUE_POLICIES`; repeat the name in
`pipelines.cli.simulation_options` and `modelserve.contract.placements`. The compiled engine needs the same key, in
`pipelines.simulation.engine.compiled`: `starts` computes it, `run` names it.
"""

# ruff: noqa: ARG001 -- all policies have the same signature, whichever arguments they read

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler_core.cluster import MILLI
from scheduler_core.errors import BadInput
from scheduler_core.gangs import Waiting
from scheduler_core.kernels import gittins as index


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """State that policies read: `dominant_share` maps users to the largest share (0..1) they hold of any resource."""

    dominant_share: Mapping[Hashable, float] = field(default_factory=dict)


Key = Callable[[Waiting, QueueState, float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """A queue policy: its key function and its properties.

    `dynamic`: the key must be evaluated again after every start. A static key may change while the job runs (`srtf`,
    `las`), but not while it waits. `preemptive`: jobs with smaller keys preempt by default. `by_user`: a dynamic key
    that reads only the share of the job's own user, and does not fall when that share grows. Then only the jobs of a
    starting job's user need a new ranking.
    """

    key: Key
    dynamic: bool = False
    preemptive: bool = False
    by_user: bool = False


def aged(policy: QueuePolicy, aging: float) -> QueuePolicy:
    """Return a policy that subtracts `aging` from a job's key for every second of waiting.

    All keys fall at the same rate, so `key + aging * arrived_s` gives the same order without depending on the current
    time. So a static policy stays static.

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
    """Order by arrival; a job that returns to the queue keeps its arrival time.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 with FIFO.
    """
    return job.arrived_s


def sjf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by predicted run time of the whole job, including the part already run; jobs without a prediction last.

    Prediction errors do less damage than under `srtf`: a job that outlasts its prediction does not move to the front.

    References
    ----------
    Dell'Amico, Carra, Pastorelli, Michiardi: Revisiting Size-Based Scheduling with Estimated Job Sizes, MASCOTS 2014
    (the damage done by underestimated jobs).
    """
    return job.predicted_s if math.isfinite(job.predicted_s) else math.inf


def srtf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by remaining predicted run time; jobs without a prediction last.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2, shortest remaining time first; Schrage, Miller: The Queue M/G/1 with the Shortest
    Remaining Processing Time Discipline, Operations Research 1966.
    """
    return job.remaining_s


def qssf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by predicted GPU time: the predicted run time times the GPUs of the gang's next start.

    References
    ----------
    Hu et al.: Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC 2021
    (quasi-shortest-service-first).
    """
    return job.predicted_s * (job.demand.milli_gpus / MILLI) if math.isfinite(job.predicted_s) else math.inf


def las(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by attained service, the GPU time of the job so far; a gang without GPUs counts as a thousandth of a GPU.

    References
    ----------
    Gu et al.: Tiresias, NSDI 2019 (two-dimensional least attained service, here without discrete queues).
    """
    return job.attained_s * max(job.demand.milli_gpus, 1) / MILLI


def las_time(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by attained run time, whatever the GPUs of the job.

    References
    ----------
    Nuyens, Wierman: The Foreground-Background queue: a survey, Performance Evaluation 2008.
    """
    return job.attained_s


def mlfq(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by level of a feedback queue, set by the predicted or the attained run time, whichever is larger.

    A job begins at the level of its predicted run time and moves on when it has attained more. Within a level, jobs are
    ordered by arrival and do not preempt each other. Without a prediction a job begins at the first level.

    References
    ----------
    Gu et al.: Tiresias, NSDI 2019 (discretised LAS, where every job begins at the first level).
    """
    level = index.level_of(job.attained_s)
    return max(level, index.level_of(job.predicted_s)) if math.isfinite(job.predicted_s) else level


def gittins(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by the reciprocal of the Gittins index, a remaining run time, from predicted p50 and p90 and attained time.

    With an exact prediction this is the remaining run time, as in `srtf`; the wider the prediction, the more the order
    is that of `las_time`. The time of a restart, `index.RESTARTS` times, is added to the key of a preempted job and
    subtracted from that of a running one. So a job preempts only if that gains more than the restarts cost. Jobs
    without a prediction come last.

    References
    ----------
    Gittins: Bandit Processes and Dynamic Allocation Indices, J. R. Statist. Soc. B 1979; Gu et al.: Tiresias, NSDI 2019
    (Gittins index from the distribution of all jobs, without predictions, there times GPUs).
    """
    if not math.isfinite(job.predicted_s):
        return math.inf
    spread = index.spread_of(job.predicted_s, job.predicted_p90_s)
    table, p50_s = index.remaining_table(), job.predicted_s
    return index.remaining_of(table, index.AGES, spread, p50_s, job.attained_s) + index.RESTARTS * job.owed_s


def drf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by the dominant share of the job's user, the largest share that the user holds of any resource.

    References
    ----------
    Ghodsi et al.: Dominant Resource Fairness, NSDI 2011 (the user with the least dominant share is next).
    """
    return state.dominant_share.get(job.user, 0.0)


def priority(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by priority, largest first.

    References
    ----------
    PriorityClass in Kubernetes and multifactor priority in Slurm order the same way.
    """
    return -job.priority


def policy_of(policy: str | QueuePolicy) -> QueuePolicy:
    """Return the queue policy with a given name; return a policy object unchanged.

    Raises
    ------
    BadInput
        If no policy has the name.
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
    "las_time": QueuePolicy(key=las_time, preemptive=True),
    "mlfq": QueuePolicy(key=mlfq, preemptive=True),
    "gittins": QueuePolicy(key=gittins, preemptive=True),
    "drf": QueuePolicy(key=drf, dynamic=True, by_user=True),
    "priority": QueuePolicy(key=priority),
}

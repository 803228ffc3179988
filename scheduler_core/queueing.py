"""Queue policies: in which order waiting jobs are offered to the cluster.

A policy is a `key(job, state, now_s)`, smallest first, declared static (fixed while the job waits) or dynamic (asked
anew every round). Ties go to the earlier arrival.
Called by `rounds`; the registry at the end is what names refer to.
"""
# ruff: noqa: ARG001 -- every policy has the one signature, whichever arguments it looks at

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler_core.cluster import Demand
from scheduler_core.types import Job, Recommendation, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in the queue: what it will be given when it starts, and since when it waits.

    `serial` numbers the arrivals of a run; `granted` is the target, or the request where it was not shrunk or was
    killed before; `shape` numbers the distinct demands of a run, so that equal ones are known to be equal.
    """

    serial: int
    job: Job
    arrived_s: float
    granted: Request
    demand: Demand
    recommendation: Recommendation | None = None
    shape: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What a policy may look at besides the job: the dominant share each user holds now (0..1)."""

    dominant_share: Mapping[str | None, float]


Key = Callable[[Waiting, QueueState, float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """A key and whether it must be asked anew every round."""

    key: Key
    dynamic: bool


def fifo(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by arrival; a killed job keeps its place."""
    return job.arrived_s


def srtf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by remaining predicted run time (p50); a job without a prediction goes last.

    Nothing is preempted and a killed job starts over, so what remains of a waiting job is all of it.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2, shortest remaining time first.
    """
    predicted_s = math.nan if job.recommendation is None else job.recommendation.run_time_p50_s
    return math.inf if math.isnan(predicted_s) else predicted_s


def drf(job: Waiting, state: QueueState, now_s: float) -> float:
    """Order by the dominant share of the job's user, a gang counting as one unit; asked once per round.

    References
    ----------
    Ghodsi et al.: Dominant Resource Fairness, NSDI 2011. Here the order is not renewed within a round.
    """
    return state.dominant_share.get(job.job.user, 0.0)


QUEUE_POLICIES: Final[dict[str, QueuePolicy]] = {
    "fifo": QueuePolicy(key=fifo, dynamic=False),
    "srtf": QueuePolicy(key=srtf, dynamic=False),
    "drf": QueuePolicy(key=drf, dynamic=True),
}

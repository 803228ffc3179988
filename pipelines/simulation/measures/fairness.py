"""Fairness among users: Jain's index, and finish-time fairness against a private share of the cluster.

Pure functions of columns and schedules. Called by `metrics`.
"""

import math

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.job_metrics import capacity_units
from scheduler_core.types import FloatArray, IntArray


def jain(values: FloatArray) -> float:
    """Return (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything; NaN without values.

    >>> jain(np.array([2.0, 2.0])), jain(np.array([4.0, 0.0]))
    (1.0, 0.5)

    References
    ----------
    Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination for resource allocation (1984).
    """
    squares = len(values) * float(np.square(values).sum())
    return float(values.sum()) ** 2 / squares if squares else math.nan


def user_means(values: FloatArray, users: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the (weighted) mean of each user with a weight above 0, in the order of user codes.

    >>> user_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 7]))
    array([2., 5.])
    """
    weights = np.ones(len(values)) if weights is None else weights
    totals = np.bincount(users, weights=weights)
    sums = np.bincount(users, weights=weights * values)
    return np.asarray(sums[totals > 0.0] / totals[totals > 0.0], dtype=np.float64)


def dominant_share_s(schedule: Schedule) -> FloatArray:
    """Return each job's work at its full request: run time times its dominant share of the cluster (n,).

    References
    ----------
    Ghodsi et al.: Dominant resource fairness (NSDI 2011), for the share.
    """
    workload = schedule.workload
    shares = np.zeros(len(workload))
    for resource, capacity in enumerate(capacity_units(schedule)):
        np.maximum(shares, workload.request_units[:, resource] / max(int(capacity), 1), out=shares)
    shares *= workload.instances
    shares *= workload.run_s
    return shares


def private_finish_s(arrive_s: FloatArray, users: IntArray, run_s: FloatArray, work_s: FloatArray) -> FloatArray:
    """Return when each job would end if each of the N users had a private 1/N share of the cluster (n,).

    A user's jobs are served in order of arrival (rows ascend in `arrive_s`), as a fluid: the share is busy while a job
    is left, and no job ends before its run time is over. `work_s` is a job's time on the whole cluster.

    >>> arrive_s, run_s, work_s = np.array([[0.0, 10.0, 20.0], [30.0, 30.0, 5.0], [20.0, 20.0, 1.0]])
    >>> private_finish_s(arrive_s, np.array([0, 0, 1]), run_s, work_s)
    array([40., 80., 25.])
    """
    # Users packed with their rows sort several times faster than by a stable argsort.
    order = np.sort(users * len(users) + np.arange(len(users))) % max(len(users), 1)
    at = np.flatnonzero(np.diff(users[order], prepend=-1))
    segment = np.repeat(np.arange(len(at)), np.diff(at, append=len(users)))
    share_s = work_s[order] * len(at)
    queued_s = np.cumsum(share_s)
    queued_s -= (queued_s[at] - share_s[at])[segment]
    # Lindley recursion: the current busy period began at the latest moment at which the share was idle.
    begun_s = _running_max(arrive_s[order] - (queued_s - share_s), segment)
    finish_s = np.empty(len(users))
    finish_s[order] = np.maximum(begun_s + queued_s, arrive_s[order] + run_s[order])
    return finish_s


def _running_max(values: FloatArray, segment: IntArray) -> FloatArray:
    """Return the largest value so far within each segment; exact, as it compares ranks that ascend with segments."""
    by_size = np.argsort(values)  # unstable sort: equal values are interchangeable
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[by_size] = np.arange(len(values))
    ranks += segment * len(values)
    largest = np.maximum.accumulate(ranks) - segment * len(values)
    return np.asarray(values[by_size[largest]], dtype=np.float64)


def finish_time_fairness(schedule: Schedule, counted: IntArray) -> FloatArray:
    """Return rho of the jobs `counted` (rows): time from arrival to end, over the same in a private 1/N share.

    Sharing is fair to a job if rho is at most 1. N counts all users who submitted, and their queues hold all their
    jobs. NaN for jobs that did not end.

    References
    ----------
    Mahajan et al.: Themis (NSDI 2020), finish-time fairness; its independent finish time is that of an app alone on 1/N
    of the cluster. Here the app is a user, and the share a fluid, so that it needs no second simulation.
    """
    workload = schedule.workload
    fits = np.flatnonzero((workload.arrive_s <= schedule.end_s) & ~schedule.never_fits)
    alone_s = np.full(len(workload), np.nan)
    alone_s[fits] = private_finish_s(
        workload.arrive_s[fits], workload.user[fits], workload.run_s[fits], dominant_share_s(schedule)[fits]
    )
    arrive_s = workload.arrive_s[counted]
    return np.asarray((schedule.finished_s[counted] - arrive_s) / (alone_s[counted] - arrive_s), dtype=np.float64)

"""Fairness among users: Jain's index, and finish-time fairness against a private share of the cluster.

Pure functions of columns and schedules.
"""

import math

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.job_metrics import capacity_units
from scheduler_core.types import FloatArray, IntArray


def jain(values: FloatArray) -> float:
    """Return Jain's index (sum x)^2 / (n sum x^2): 1 if all values are equal, 1/n if only one is above 0.

    The index is NaN without values.

    >>> jain(np.array([2.0, 2.0])), jain(np.array([4.0, 0.0]))
    (1.0, 0.5)

    References
    ----------
    Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination for resource allocation (1984).
    """
    squares = len(values) * float(np.square(values).sum())
    return float(values.sum()) ** 2 / squares if squares else math.nan


def user_means(values: FloatArray, users: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the (weighted) mean of the values of each user, in the order of user codes.

    Users whose weights sum to 0 are left out.

    >>> user_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 7]))
    array([2., 5.])
    """
    weights = np.ones(len(values)) if weights is None else weights
    totals = np.bincount(users, weights=weights)
    sums = np.bincount(users, weights=weights * values)
    return np.asarray(sums[totals > 0.0] / totals[totals > 0.0], dtype=np.float64)


def dominant_share_s(schedule: Schedule) -> FloatArray:
    """Return the work of each job (n,): run time at the full request times the job's dominant share of the cluster.

    References
    ----------
    Ghodsi et al.: Dominant resource fairness (NSDI 2011), which defines the dominant share.
    """
    workload = schedule.workload
    shares = np.zeros(len(workload))
    for resource, capacity in enumerate(capacity_units(schedule)):
        np.maximum(shares, workload.request_units[:, resource] / max(int(capacity), 1), out=shares)
    shares *= workload.instances
    shares *= workload.run_s
    return shares


def private_finish_s(arrive_s: FloatArray, users: IntArray, run_s: FloatArray, work_s: FloatArray) -> FloatArray:
    """Return when each job (n,) would end if each of the N users had a private 1/N share of the cluster.

    A user's jobs are served one after another in order of arrival (rows must ascend in `arrive_s`). Each takes N times
    its `work_s` on the share, where `work_s` is the time of the job if it could use the whole cluster, and no job ends
    before its run time is over.

    >>> arrive_s, run_s, work_s = np.array([[0.0, 10.0, 20.0], [30.0, 30.0, 5.0], [20.0, 20.0, 1.0]])
    >>> private_finish_s(arrive_s, np.array([0, 0, 1]), run_s, work_s)
    array([40., 80., 25.])
    """
    # Sorting integers that combine user and row is several times faster than a stable argsort by user.
    order = np.sort(users * len(users) + np.arange(len(users))) % max(len(users), 1)
    at = np.flatnonzero(np.diff(users[order], prepend=-1))
    segment = np.repeat(np.arange(len(at)), np.diff(at, append=len(users)))
    share_s = work_s[order] * len(at)
    queued_s = np.cumsum(share_s)
    queued_s -= (queued_s[at] - share_s[at])[segment]
    # Lindley recursion, solved with a running maximum over the possible starts of the current busy period.
    begun_s = _running_max(arrive_s[order] - (queued_s - share_s), segment)
    finish_s = np.empty(len(users))
    finish_s[order] = np.maximum(begun_s + queued_s, arrive_s[order] + run_s[order])
    return finish_s


def _running_max(values: FloatArray, segment: IntArray) -> FloatArray:
    """Return at each position the largest value so far within its segment.

    One running maximum over all segments suffices, because values are replaced by ranks that grow with the segment.
    """
    by_size = np.argsort(values)  # the sort need not be stable, because equal values are interchangeable
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[by_size] = np.arange(len(values))
    ranks += segment * len(values)
    largest = np.maximum.accumulate(ranks) - segment * len(values)
    return np.asarray(values[by_size[largest]], dtype=np.float64)


def finish_time_fairness(schedule: Schedule, counted: IntArray) -> FloatArray:
    """Return rho of the jobs in the rows `counted`: time from arrival to end / that time in a private 1/N share.

    Sharing is fair to a job if rho is at most 1. N is the number of users who submitted a job, and the private shares
    serve all jobs, not only those in `counted`. Rho is NaN for a job that did not end.

    References
    ----------
    Mahajan et al.: Themis (NSDI 2020), finish-time fairness. Themis divides by the finish time of an app alone on 1/N
    of the cluster. Here a user takes the place of the app, and the finish time is computed by `private_finish_s`.
    """
    workload = schedule.workload
    fits = np.flatnonzero((workload.arrive_s <= schedule.end_s) & ~schedule.never_fits)
    alone_s = np.full(len(workload), np.nan)
    alone_s[fits] = private_finish_s(
        workload.arrive_s[fits], workload.user[fits], workload.run_s[fits], dominant_share_s(schedule)[fits]
    )
    arrive_s = workload.arrive_s[counted]
    return np.asarray((schedule.finished_s[counted] - arrive_s) / (alone_s[counted] - arrive_s), dtype=np.float64)

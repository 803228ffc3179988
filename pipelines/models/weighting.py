"""Weights of training rows: more for jobs like those still running at the cut, less for old jobs.

Called by `pipelines.models.fitted`.
"""

from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pipelines.models.examples import Examples
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import Split

IntArray = npt.NDArray[np.int64]

WEIGHT_LIMIT: Final = 20.0
"""Maximum weight of an ended job, so that a few long jobs cannot dominate the fit."""


def survival_before(times: FloatArray, events: npt.NDArray[np.bool_], at: FloatArray) -> FloatArray:
    """Return the Kaplan-Meier estimate of P(T >= t) at each t of `at`.

    It is the product of 1 - d(u)/n(u) over the event times u < t, where d(u) is the number of events at u and n(u) the
    number of rows with time >= u.

    >>> survival_before(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True]), np.array([1.0, 3.0, 4.0]))
    array([1.   , 0.75 , 0.375])
    """
    moments, inverse = np.unique(times, return_inverse=True)
    happened = np.bincount(inverse, weights=events.astype(np.float64), minlength=len(moments))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    after = np.concatenate([[1.0], np.cumprod(1.0 - happened / at_risk)])
    return after[np.searchsorted(moments, at, side="left")]


def censoring_weights(ended_run_s: FloatArray, open_run_s: FloatArray) -> FloatArray:
    """Return inverse-probability-of-censoring weights of ended jobs: long jobs stand in for those still running.

    Parameters
    ----------
    ended_run_s
        Run times of the jobs that ended before the cut (n,).
    open_run_s
        Time from start to cut of the jobs still running at the cut (m,): lower bounds of their run times.

    Returns
    -------
    weights
        1 / G(y) of each ended job (n,), at most `WEIGHT_LIMIT`, where G(y) estimates the probability that a run time
        of y is not censored (Kaplan-Meier). All 1 if no job is censored.

    >>> censoring_weights(np.array([1.0, 5.0]), np.array([2.0, 3.0])).round(3).tolist()
    [1.0, 3.0]
    """
    times = np.concatenate([ended_run_s, open_run_s])
    censored = np.concatenate([np.zeros(len(ended_run_s), dtype=bool), np.ones(len(open_run_s), dtype=bool)])
    uncensored_chance = survival_before(times, censored, ended_run_s)
    return 1.0 / np.maximum(uncensored_chance, 1.0 / WEIGHT_LIMIT)


def row_weights(
    examples: Examples,
    trained: IntArray,
    split: Split,
    until: datetime | None,
    *,
    censored: Literal["weights", "absent"],
    half_life_days: float | None,
) -> FloatArray:
    """Return the weight of every row (n,): censoring times recency weight, scaled to mean 1; 0 if not trained on.

    `censored` and `half_life_days` are as in `pipelines.models.fitted.Recipe`.
    """
    weights = np.ones(len(trained))
    if censored == "weights" and until is not None and len(split.censored):
        open_run_s = examples.open_run_s(split.censored, until)
        weights *= censoring_weights(examples.run_s[trained], open_run_s[open_run_s > 0])
    if half_life_days is not None:
        submit_us = examples.submit_us[trained]
        weights *= 0.5 ** ((submit_us.max() - submit_us) / 86_400e6 / half_life_days)
    every = np.zeros(len(examples.log_y))
    every[trained] = weights / weights.mean()
    return every

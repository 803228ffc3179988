"""What a job still running at the cut says: weights that give its absence back to the jobs like it that ended.

Only the weights; the trees take them like any other weight. A run time that is censored is never a label.
Called by `training.runtime` and `training.evaluate`.

References: Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958);
Robins and Rotnitzky (1992) for inverse probability of censoring weighting.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from pipelines.models.metrics import FloatArray

WEIGHT_LIMIT: Final = 20.0
"""No ended job stands for more than this many jobs, so that a handful of long ones cannot carry the fit."""


def survival_before(times: FloatArray, events: npt.NDArray[np.bool_], at: FloatArray) -> FloatArray:
    """Return the Kaplan-Meier estimate of P(T >= t) at each `at`: the product over event times u < t of 1 - d(u)/n(u).

    d(u) is the number of events at u, n(u) the number of rows with time >= u.

    >>> survival_before(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True]), np.array([1.0, 3.0, 4.0]))
    array([1.   , 0.75 , 0.375])
    """
    moments, inverse = np.unique(times, return_inverse=True)
    happened = np.bincount(inverse, weights=events.astype(np.float64), minlength=len(moments))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    after = np.concatenate([[1.0], np.cumprod(1.0 - happened / at_risk)])
    return after[np.searchsorted(moments, at, side="left")]


def censoring_weights(ended_run_s: FloatArray, open_run_s: FloatArray) -> FloatArray:
    """Weigh each ended job by one over the chance that a job of its length had ended by the cut.

    Parameters
    ----------
    ended_run_s
        Run times of the jobs that ended before the cut (n,).
    open_run_s
        Time from start to cut of the jobs still running at it (m,): lower bounds of their run times.

    Returns
    -------
    weights
        1 / G(y), G the Kaplan-Meier survival of the censoring time; at most `WEIGHT_LIMIT`; all 1 when nothing is
        censored (n,).

    >>> censoring_weights(np.array([1.0, 5.0]), np.array([2.0, 3.0])).round(3).tolist()
    [1.0, 3.0]
    """
    times = np.concatenate([ended_run_s, open_run_s])
    censored = np.concatenate([np.zeros(len(ended_run_s), dtype=bool), np.ones(len(open_run_s), dtype=bool)])
    uncensored_chance = survival_before(times, censored, ended_run_s)
    return 1.0 / np.maximum(uncensored_chance, 1.0 / WEIGHT_LIMIT)

"""Jobs, forecasts and members for the tests of the combination of forecasts."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.combination import Combination

FloatArray = npt.NDArray[np.float64]
TWO = ("reference", "similar_jobs")
SEEDS = st.integers(0, 10_000)
MEMBERS = st.sampled_from([("reference",), TWO, ("xgboost", "forest"), ("forest", *TWO), COMBINABLE])


def forecasts_like(log_y: FloatArray, members: int, rng: np.random.Generator, noise: float = 0.7) -> FloatArray:
    """Return forecasts (n, members, 2) around the run times; each member has an error of its own."""
    errors = rng.normal(0.0, noise * np.linspace(0.3, 1.5, members)[:, None], (len(log_y), members, 1))
    widths = rng.uniform(0.0, 1.5, (len(log_y), members, 1))
    return log_y[:, None, None] + errors + np.concatenate([-widths * 0.2, widths], axis=2)


def history(n: int, members: int, seed: int) -> dict[str, npt.NDArray]:
    """Return jobs that overlap, a few of them without a run time.

    Some are submitted together, some end together, and of those some ran equally long, with equal forecasts or others.
    """
    rng = np.random.default_rng(seed)
    submit_us = np.sort(rng.integers(0, 2 * n, n))
    log_y = rng.normal(5.0, 1.2, n)
    forecasts = forecasts_like(log_y, members, rng)
    end_us = submit_us + rng.integers(0, n // 2 + 2, n)
    twins = rng.integers(0, n, (2, n // 3))
    submit_us[twins[0]] = np.minimum(submit_us[twins[0]], submit_us[twins[1]])
    end_us[twins[0]], log_y[twins[0]] = end_us[twins[1]], log_y[twins[1]]
    same = twins[:, rng.random(n // 3) < 0.5]
    forecasts[same[0], : members // 2 + 1] = forecasts[same[1], : members // 2 + 1]
    open_rows = rng.random(n) < 0.15
    log_y[open_rows], end_us[open_rows] = np.nan, np.iinfo(np.int64).max
    return {"submit_us": submit_us, "end_us": end_us, "forecasts": forecasts, "log_y": log_y}


def taught(combination: Combination, forecasts: FloatArray, log_y: FloatArray) -> Combination:
    """Return the combination after one ended job after the other."""
    for row, y in zip(forecasts, log_y.tolist(), strict=True):
        combination = combination.learnt(row, y)
    return combination

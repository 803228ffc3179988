"""Rows on which trees of two makes are compared: at the edges of their own splits, where they would differ first.

Nothing is walked and nothing compared here. Called by `modelserve.bundle.trees.compiled`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.forest import Forest

CHECK_ROWS: Final = 64
"""How many random rows a booster is compared on, beside those made of its own thresholds."""


def trial_rows(forest: Forest) -> npt.NDArray[np.float32]:
    """Make rows to compare on: every feature at, below and above thresholds it is split at, categories unseen, NaN."""
    rng = np.random.default_rng(0)
    inner = (forest.left >= 0) & (forest.words_at < 0)
    rows = rng.normal(scale=10.0, size=(CHECK_ROWS, forest.features)).astype(np.float32)
    categorical = np.unique(forest.feature[(forest.left >= 0) & (forest.words_at >= 0)])
    order = np.argsort(forest.feature[inner], kind="stable")
    split, at = forest.feature[inner][order], forest.threshold[inner][order]
    for feature, first, count in zip(*np.unique(split, return_index=True, return_counts=True), strict=True):
        chosen = rng.choice(at[first : first + count], CHECK_ROWS)
        towards = rng.choice(np.array([-np.inf, 0.0, np.inf], dtype=np.float32), CHECK_ROWS)
        rows[:, feature] = np.where(towards == 0.0, chosen, np.nextafter(chosen, towards))
    for feature in categorical:
        rows[:, feature] = rng.choice(np.array([-1.0, 0.5, 1e9, *range(64)], dtype=np.float32), CHECK_ROWS)
    missing = rng.random(rows.shape) < np.linspace(0.0, 0.9, CHECK_ROWS)[:, None]
    rows[missing] = np.nan
    edges = np.array([np.nan, 0.0, -0.0, -1.0, 3e38, -3e38], dtype=np.float32)
    return np.vstack([rows, np.repeat(edges[:, None], forest.features, axis=1)])

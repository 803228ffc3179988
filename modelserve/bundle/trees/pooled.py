"""Compiled quantiles of the values in the leaves that a row reaches, pooled over the trees of a forest.

Called by `modelserve.bundle.quantile_forest`.
"""

import numpy as np

from modelserve.bundle.trees.compiled import jitted

__all__ = ["pooled"]


@jitted(None)
def _quantile(ranked, level):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return a quantile of an ascending array by linear interpolation, as `numpy.quantile` does."""
    at = level * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (at - low) * (np.float64(ranked[high]) - ranked[low])


@jitted(None)
def pooled(matrix, feature, threshold, left, default_left, root, place, values, out):  # type: ignore[no-untyped-def]  # as above
    """Fill `out` (n, 2) with p50 and p90 of the values that each row of `matrix` (n, k) reaches."""
    width = values.shape[1]
    pool = np.empty(len(root) * width, dtype=np.float32)
    for i in range(len(matrix)):
        for tree in range(len(root)):
            node = root[tree]
            while left[node] >= 0:
                value = matrix[i, feature[node]]
                goes_left = default_left[node] if np.isnan(value) else value < threshold[node]
                node = left[node] if goes_left else left[node] + 1
            pool[tree * width : (tree + 1) * width] = values[place[node]]
        pool.sort()
        out[i, 0], out[i, 1] = _quantile(pool, 0.5), _quantile(pool, 0.9)

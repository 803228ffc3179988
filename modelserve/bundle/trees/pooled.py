"""Compiled quantiles of the values in the leaves that a row reaches, pooled over the trees of a forest.

Called by `modelserve.bundle.quantile_forest`.
"""

from typing import Final

import numpy as np

from modelserve.bundle.trees.compiled import FEATURE, jitted

__all__ = ["pooled"]

LANES: Final = 8
"""Number of trees that are walked together, so that their memory accesses overlap."""
_WORD: Final = np.uintp
_SIGN: Final = np.int32(0x7FFFFFFF)


@jitted(None)
def _leaves(row, nodes, numbers, roots, steps, found):  # type: ignore[no-untyped-def]  # numba infers the types
    """Fill in the leaf (node) that a row reaches from each of `LANES` roots, in at most `steps` steps."""
    for k in range(LANES):
        found[k] = roots[k]
    for _ in range(steps):
        for k in range(LANES):
            node = _WORD(found[k]) * _WORD(4)
            held = nodes[node + _WORD(1)]
            value, threshold, left = row[_WORD(held & FEATURE)], numbers[node + _WORD(2)], held >> 30
            right = (np.int32(value >= threshold) & left) | (np.int32(not (value < threshold)) & (1 - left))
            found[k] = nodes[node] + right


@jitted(None)
def _at_most(keys, bound):  # type: ignore[no-untyped-def]  # as above
    """Return how many keys are at most `bound`; in this form, LLVM compares many keys at once."""
    count = 0
    for place in range(keys.size):
        count += keys[place] <= bound
    return count


@jitted(None)
def _ranked(keys, rank):  # type: ignore[no-untyped-def]  # as above
    """Return the keys at `rank` and `rank + 1` in ascending order, by bisection; the last key follows itself."""
    low, high = np.int64(keys.min()), np.int64(keys.max())
    while low < high:
        middle = (low + high) >> 1
        if _at_most(keys, np.int32(middle)) > rank:
            high = middle
        else:
            low = middle + 1
    found = np.int32(low)
    if _at_most(keys, found) > rank + 1 or rank + 1 == keys.size:
        return found, found
    following = keys.max()
    for place in range(keys.size):
        following = min(following, keys[place] if keys[place] > found else following)
    return found, following


@jitted(None)
def _quantile(keys, level, two):  # type: ignore[no-untyped-def]  # as above
    """Return a quantile of the numbers with these keys by linear interpolation, as `numpy.quantile` does.

    `two` (2,) is working memory.
    """
    at = level * (len(keys) - 1)
    low = int(at)
    two[0], two[1] = _ranked(keys, low)
    for i in range(2):
        two[i] ^= (two[i] >> 31) & _SIGN
    numbers = two.view(np.float32)
    return numbers[0] + (at - low) * (np.float64(numbers[1]) - numbers[0])


@jitted(None)
def pooled(matrix, nodes, numbers, root, depth, values, out):  # type: ignore[no-untyped-def]  # as above
    """Fill `out` (n, 2) with p50 and p90 of the values that each row of `matrix` (n, k) reaches.

    `nodes` is in the layout of `compiled.packed_nodes`; the last column of a leaf is its row in `values`, which is
    viewed as integers. A number's key is its bits, changed so that keys are in the order of their numbers.
    """
    width = values.shape[1]
    keys, two = np.empty(len(root) * width, dtype=np.int32), np.empty(2, dtype=np.int32)
    found, roots = np.empty(LANES, dtype=np.int32), np.empty(LANES, dtype=np.int32)
    for i in range(len(matrix)):
        for first in range(0, len(root), LANES):
            steps, several = 0, min(LANES, len(root) - first)
            for k in range(LANES):
                tree = first + min(k, several - 1)
                roots[k], steps = root[tree], max(steps, depth[tree])
            _leaves(matrix[i], nodes, numbers, roots, steps, found)
            for k in range(several):
                place = nodes[_WORD(found[k]) * _WORD(4) + _WORD(3)]
                for j in range(width):
                    bits = values[place, j]
                    keys[(first + k) * width + j] = bits ^ ((bits >> 31) & _SIGN)
        out[i, 0], out[i, 1] = _quantile(keys, 0.5, two), _quantile(keys, 0.9, two)

"""Convert the category sets of a model file into bit masks.

At a categorical split, a row goes right if its category is in the split's set. Every index is checked before a bit is
set. Called by `modelserve.bundle.trees.forest`, which reads the trees.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.ubjson import Value
from modelserve.errors import BundleError

CATEGORY_WORDS_LIMIT: Final = 1 << 18
"""Maximum size of all category sets, in 32-bit words (1 MiB). A tiny file could otherwise demand gigabytes."""

CATEGORY_LIMIT: Final = 1 << 24
"""Upper bound (exclusive) of category codes, as in XGBoost: float32 does not represent larger integers exactly."""

_ARRAYS: Final = ("categories_nodes", "categories_segments", "categories_sizes", "categories")

IntArray = npt.NDArray[np.int64]


def category_sets(
    trees: Sequence[Value], sizes: IntArray, root: IntArray
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """Return the category sets of all trees, and the offset of each node's set among them.

    The offset is -1 for a node without a set. Each set is stored as its number of 32-bit words, followed by the words.

    Raises
    ------
    BundleError
        A set points outside its tree, or all sets together take more than `CATEGORY_WORDS_LIMIT`.
    """
    nodes, lengths, held = [], [], []
    for tree, size, offset in zip(trees, sizes.tolist(), root.tolist(), strict=True):
        node, begin, length, categories = (np.asarray(tree[key], dtype=np.int64) for key in _ARRAYS)
        if not len(node) and not len(categories):
            continue
        end = np.cumsum(length)
        if not len(node) == len(begin) == len(length) or (begin != end - length).any() or end[-1:] != len(categories):
            raise BundleError("category sets with gaps or overlaps, expected one directly after another")
        if (
            (np.diff(node) <= 0).any()
            or node[0] < 0
            or node[-1] >= size
            or not (1 <= length.min() <= length.max() <= len(categories))
        ):
            raise BundleError("category sets of nodes out of order or range, expected ascending nodes")
        nodes.append(node + offset)
        lengths.append(length)
        held.append(categories)
    words_at = np.full(int(sizes.sum()), -1, dtype=np.int32)
    if not nodes:
        return words_at, np.zeros(0, dtype=np.uint32)
    length, category = np.concatenate(lengths), np.concatenate(held)
    if not 0 <= category.min() <= category.max() < CATEGORY_LIMIT:
        raise BundleError(f"categories from {category.min()} to {category.max()}, expected 0 to {CATEGORY_LIMIT}")
    width = np.maximum.reduceat(category, np.cumsum(length) - length) // 32 + 1
    at = np.cumsum(width + 1) - (width + 1)
    total = int((width + 1).sum())
    if total > CATEGORY_WORDS_LIMIT:
        raise BundleError(f"category sets of {total} words, expected at most {CATEGORY_WORDS_LIMIT}")
    words = np.zeros(total, dtype=np.uint32)
    words[at] = width
    bits = np.uint32(1) << (category % 32).astype(np.uint32)
    np.bitwise_or.at(words, np.repeat(at + 1, length) + category // 32, bits)
    words_at[np.concatenate(nodes)] = at
    return words_at, words

"""Compiled evaluation of a booster's trees: takes microseconds per row, and gives the same bits as XGBoost.

Rows that differ in few columns, such as the candidate requests of a job, share the result of trees that do not split on
these columns. Files are read in `modelserve.bundle.trees.forest`; no calibration here. Called by `modelserve.loading`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numba
import numpy as np
import numpy.typing as npt

from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.trees.forest import Forest, joined, read_forest, trial_rows
from modelserve.errors import BundleError

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["CompiledTrees", "jitted", "packed_nodes"]

TOLERANCE: Final = 1e-5
"""Maximum difference from XGBoost's output, in log units."""

LANES: Final = 8
"""Number of tree walks interleaved so that their memory accesses overlap; 16 were slower than 8."""

BLOCK: Final = 64
"""Number of rows evaluated together: this many rows and a few trees fit into the L1 cache."""

PAIRS: Final = 512
"""Number of (row, tree) pairs per batch: 8 trees for a block of 64 rows, or 512 trees for a single row."""

FEW: Final = 9
"""Maximum number of columns in which a row may differ from the row whose leaves it reuses.

Candidates of one job differ only in the columns derived from the request, which are at most this many.
"""

DEFAULT_LEFT: Final = 1 << 30
CATEGORICAL: Final = 1 << 29
FEATURE: Final = CATEGORICAL - 1
"""Bit masks of a node's second number: two flags, and the bits of the feature index (`FEATURE`)."""

CATEGORY_LIMIT: Final = 1 << 24

_SIGNATURE: Final = (
    "void(float32[:, ::1], int32[:, ::1], int32[::1], float32[::1], uint32[::1], int32[::1], int32[::1], int32[::1], "
    "float32[:, ::1])"
)
_WORD: Final = np.uintp
"""Type of array indices. Unsigned, because compiled code checks signed indices for negative values at each access."""


def jitted(signature: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles a function with numba, cached on disk if the folder is writable."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:
            made = numba.njit(signature, nogil=True)(function)
        return made

    return compiled


@jitted(None)
def _in_set(value, held, words_at, words):  # type: ignore[no-untyped-def]  # numba infers the types from `_walk`
    """Return 1 if a row with this category goes right at a node, and 0 if it goes left, as in XGBoost."""
    if np.isnan(value):
        return np.int32((held & DEFAULT_LEFT) == 0)
    if value < 0 or value >= CATEGORY_LIMIT:
        return np.int32(0)
    category = np.uint32(value)
    word = category >> np.uint32(5)
    if word >= words[words_at]:
        return np.int32(0)
    return np.int32((words[words_at + 1 + word] >> (category & np.uint32(31))) & np.uint32(1))


@jitted(None)
def _descend(values, nodes, numbers, words, begin, at, steps, changes, met):  # type: ignore[no-untyped-def]  # as above
    """Move every lane down `steps` nodes from `at`; set `met` if one of these nodes splits on a column in `changes`."""
    for _ in range(steps):
        for k in range(LANES):
            node = _WORD(at[k]) * _WORD(4)
            held = nodes[node + _WORD(1)]
            feature = _WORD(held & FEATURE)
            met[k] |= changes[feature]
            value = values[_WORD(begin[k]) + feature]
            if held & CATEGORICAL:
                right = _in_set(value, held, nodes[node + _WORD(3)], words)
            else:
                # Both `>=` and `<` are false for NaN, so the comparison is chosen such that NaN goes the default way.
                left, threshold = held >> 30, numbers[node + _WORD(2)]
                right = (np.int32(value >= threshold) & left) | (np.int32(not (value < threshold)) & (1 - left))
            at[k] = nodes[node] + right


@jitted(None)
def _reach(pairs, count, shift, block, trees, lanes, leaf, touched):  # type: ignore[no-untyped-def]  # as above
    """Find the leaf of each (tree, row) pair, and whether a split on the path to it uses a changed column.

    A pair is encoded as `tree << shift | row`, from the indices of the tree and the row.
    """
    values, width, changes = block
    nodes, numbers, words, root, depth = trees
    begin, at, met = lanes
    last = (1 << shift) - 1
    for pair in range(count, count + LANES):  # repeat the last pair to fill the lanes
        pairs[pair] = pairs[count - 1]
    for first in range(0, count, LANES):
        steps = 0
        for k in range(LANES):
            pair = pairs[first + k]
            tree = _WORD(pair >> shift)
            begin[k], at[k], met[k] = (pair & last) * width, root[tree], 0
            steps = max(steps, depth[tree])
        _descend(values, nodes, numbers, words, begin, at, steps, changes, met)
        for k in range(LANES):
            place = _WORD(pairs[first + k])
            leaf[place] = numbers[_WORD(at[k]) * _WORD(4) + _WORD(3)]
            touched[place] = met[k]


@jitted(None)
def _sort_out(bits, order, lead, changes):  # type: ignore[no-untyped-def]  # as above
    """Divide rows into leading rows and followers, and return the number of leading rows.

    A row is a follower if it differs from the last leading row in at most `FEW` columns; `changes` marks these columns.
    `order` lists the leading rows, then the followers; `lead` holds the leading row of each row.
    """
    size, width = bits.shape
    changes[:] = 0
    last, leading, following = 0, 0, size
    for row in range(size):
        differ = 0
        for column in range(width):
            differ += bits[row, column] != bits[last, column]
        if row > 0 and differ <= FEW:
            following -= 1
            order[following] = row
            for column in range(width):
                changes[column] |= bits[row, column] != bits[last, column]
        else:
            last = row
            order[leading] = row
            leading += 1
        lead[row] = last
    return leading


@jitted(_SIGNATURE)
def _walk(rows, bits, nodes, numbers, words, root, depth, group, out):  # type: ignore[no-untyped-def]  # types: `_SIGNATURE`
    """Add each row's leaf in every tree to the row's outputs, tree by tree in float32 as XGBoost does.

    `bits` is `rows` viewed as integers, `numbers` is `nodes` viewed as floats. If a leading row's path through a tree
    uses no changed column, its followers reuse the leaf. The left child of a leaf is the leaf itself, so that all walks
    can take equally many steps.
    """
    count, width = rows.shape
    order, lead, changes = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(width, np.uint8)
    leaf, touched, pairs = np.empty(PAIRS, np.float32), np.empty(PAIRS, np.uint8), np.empty(PAIRS + LANES, np.int64)
    lanes = np.empty(LANES, np.int64), np.empty(LANES, np.int32), np.empty(LANES, np.uint8)
    shift = 0
    while 1 << shift < min(BLOCK, count):
        shift += 1
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        leading = _sort_out(bits[begin : begin + size], order, lead, changes)
        block = rows[begin : begin + size].reshape(-1), width, changes
        for first in range(0, root.size, PAIRS >> shift):
            several = min(PAIRS >> shift, root.size - first)
            trees = nodes, numbers, words, root[first:], depth[first:]
            listed = 0
            for tree in range(several):
                for place in range(leading):
                    pairs[listed] = (tree << shift) + order[place]
                    listed += 1
            _reach(pairs, listed, shift, block, trees, lanes, leaf, touched)
            listed = 0
            for tree in range(several):
                for place in range(leading, size):
                    pair, ahead = (tree << shift) + order[place], (tree << shift) + lead[order[place]]
                    leaf[pair] = leaf[ahead]
                    if touched[ahead]:
                        pairs[listed] = pair
                        listed += 1
            if listed:
                _reach(pairs, listed, shift, block, trees, lanes, leaf, touched)
            for tree in range(several):
                for row in range(size):
                    out[begin + row, group[first + tree]] += leaf[(tree << shift) + row]


def packed_nodes(forest: Forest) -> npt.NDArray[np.int32]:
    """Return the nodes (n, 4) in the layout of `_walk`; a node fills a quarter of a cache line.

    The columns of an inner node: left child, flags and feature, bits of the threshold, offset of the category set. The
    columns of a leaf: its own index, its parent's feature, NaN (so that a walk stays at the leaf), bits of its value.
    """
    leaf = forest.left < 0
    inner = np.flatnonzero(~leaf)
    asked = forest.feature.copy()
    for child in (forest.left[inner], forest.left[inner] + 1):
        asked[child] = np.where(leaf[child], forest.feature[inner], asked[child])
    nodes = np.empty((len(leaf), 4), dtype=np.int32)
    nodes[:, 0] = np.where(leaf, np.arange(len(leaf)), forest.left)
    flags = np.where(forest.default_left, DEFAULT_LEFT, 0) | np.where(forest.words_at >= 0, CATEGORICAL, 0)
    nodes[:, 1] = np.where(leaf, DEFAULT_LEFT, flags) | asked
    nodes[:, 2] = np.where(leaf, np.float32(np.nan), forest.threshold).view(np.int32)
    nodes[:, 3] = np.where(leaf, forest.threshold.view(np.int32), forest.words_at)
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTrees:
    """The trees of one booster, ready for evaluation: the checked forest, and its nodes (see `packed_nodes`)."""

    forest: Forest
    nodes: npt.NDArray[np.int32]

    @classmethod
    def made_of(cls, forest: Forest) -> "CompiledTrees":
        """Return the trees of a forest in the layout that `_walk` expects."""
        return cls(forest=forest, nodes=packed_nodes(forest))

    @classmethod
    def of(cls, booster: "Booster", outputs: int) -> "CompiledTrees":
        """Return the compiled trees of a booster with `outputs` outputs per row.

        Raises
        ------
        BundleError
            The model is not a sum of trees, or has another number of outputs.
        """
        forest = read_forest(bytes(booster.save_raw("ubj")), name="booster")
        if forest.outputs != outputs:
            raise BundleError(f"the model has {forest.outputs} outputs, expected {outputs}")
        return cls.made_of(forest)

    @classmethod
    def joined(cls, several: Sequence["CompiledTrees"]) -> "CompiledTrees":
        """Return the trees of several boosters, whose outputs stand side by side."""
        return several[0] if len(several) == 1 else cls.made_of(joined([each.forest for each in several]))

    def one(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the outputs of one row (k,), before calibration."""
        answer: npt.NDArray[np.float64] = self.rows(row.reshape(1, -1))[0]
        return answer

    def rows(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the outputs (n, outputs) of a matrix (n, k), before calibration.

        With 400 trees of depth 7 on one core, a single row takes 9 microseconds, each of many rows 5.3, and each of
        many consecutive candidates of a job 2.9. XGBoost takes 320 for a single row and 7 to 24 for each of many rows.
        """
        forest = self.forest
        if matrix.ndim != 2 or matrix.shape[1] != forest.features:
            raise ValueError(f"a matrix of {matrix.shape}, expected (n, {forest.features})")
        out = np.empty((len(matrix), len(forest.base)), dtype=np.float32)
        out[:] = forest.base
        rows, nodes = np.ascontiguousarray(matrix, dtype=np.float32), self.nodes.reshape(-1)
        _walk(
            rows,
            rows.view(np.int32),
            nodes,
            nodes.view(np.float32),
            forest.words,
            forest.root,
            forest.depth,
            forest.group,
            out,
        )
        return out.astype(np.float64)

    def check(self, booster: "Booster", features: int) -> None:
        """Compare the outputs with XGBoost's on random rows and on rows at the booster's split thresholds.

        Raises
        ------
        BundleError
            An output differs by more than `TOLERANCE`, or the model takes another number of features.
        """
        if self.forest.features != features:
            raise BundleError(f"the model takes {self.forest.features} features, expected {features}")
        rows = trial_rows(self.forest)
        with np.errstate(invalid="ignore", over="ignore"):
            away = np.abs(self.rows(rows) - raw_outputs(booster, rows))
        if not (away <= TOLERANCE).all():
            raise BundleError(
                f"compiled trees are off by {away.max():.3g} in {len(rows)} rows, expected at most {TOLERANCE}"
            )

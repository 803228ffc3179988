"""A booster's trees compiled: an answer in microseconds, equal to the library's to the bit.

Nothing is read from files here (`modelserve.trees.forest`), and nothing calibrated.
Called by `modelserve.loading.served` and `modelserve.loading.models`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numba
import numpy as np
import numpy.typing as npt

from modelserve.boosters import raw_outputs
from modelserve.errors import BundleError
from modelserve.trees.forest import Forest, read_forest

if TYPE_CHECKING:
    from xgboost import Booster

TOLERANCE: Final = 1e-5
"""How far an answer may be from the library's, in log units."""

CHECK_ROWS: Final = 64
"""How many random rows a booster is compared on, beside those made of its own thresholds."""

LANES: Final = 8
"""How many trees a row goes down at a time: their steps wait for memory together, not one after another.

With 400 trees of depth 7, one row takes 13 microseconds of a core so, 33 tree by tree and 320 in the library, and each
of many rows 12 against the library's 24; sixteen lanes are no quicker.
"""

DEFAULT_LEFT: Final = 1 << 30
CATEGORICAL: Final = 1 << 29
FEATURE: Final = CATEGORICAL - 1
"""What a node's second number holds: two flags above the feature."""

CATEGORY_LIMIT: Final = 1 << 24

_SIGNATURE: Final = (
    "void(float32[:, ::1], int32[:, ::1], float32[:, ::1], uint32[::1], int32[::1], int32[::1], int32[::1], "
    "float32[:, ::1])"
)


def _compiled(signature: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile at import, from the cache where there is one; a place that nothing can be written to has none."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:
            made = numba.njit(signature, nogil=True)(function)
        return made

    return compiled


@_compiled(None)
def _step(value, held, threshold, words_at, words):  # type: ignore[no-untyped-def]  # compiled for what `_walk` passes
    """Return 1 where a value goes right at a node and 0 where it goes left, by XGBoost's own comparisons."""
    if held & CATEGORICAL:
        if np.isnan(value):
            return np.int32((held & DEFAULT_LEFT) == 0)
        if value < 0 or value >= CATEGORY_LIMIT:
            return np.int32(0)
        category = np.uint32(value)
        word = category >> np.uint32(5)
        if word >= words[words_at]:
            return np.int32(0)
        return np.int32((words[words_at + 1 + word] >> (category & np.uint32(31))) & np.uint32(1))
    # No branch: NaN is neither below nor above, so which of the two is asked settles where it goes.
    left = held >> 30
    return (np.int32(value >= threshold) & left) | (np.int32(not (value < threshold)) & (1 - left))


@_compiled(_SIGNATURE)
def _walk(rows, nodes, numbers, words, root, depth, group, out):  # type: ignore[no-untyped-def]  # the signature says it
    """Add the leaf of every tree, in order and in float32, to each row's outputs; a leaf leads to itself."""
    at = np.empty(LANES, np.int32)
    for r in range(rows.shape[0]):
        row = rows[r]
        for first in range(0, root.size, LANES):
            count = min(LANES, root.size - first)
            steps = 0
            for k in range(count):
                at[k] = root[first + k]
                steps = max(steps, depth[first + k])
            for _ in range(steps):
                for k in range(count):
                    node = at[k]
                    held = nodes[node, 1]
                    at[k] = nodes[node, 0] + _step(row[held & FEATURE], held, numbers[node, 2], nodes[node, 3], words)
            for k in range(count):
                out[r, group[first + k]] += numbers[at[k], 3]


def _nodes(forest: Forest) -> npt.NDArray[np.int32]:
    """Return the nodes (n, 4) as `_walk` takes them, each in a quarter of a cache line.

    A node is its left child, its flags and feature, its threshold as bits, and where its set of categories begins; a
    leaf is itself, feature 0, NaN (which nothing reaches) and its value as bits.
    """
    leaf = forest.left < 0
    nodes = np.empty((len(leaf), 4), dtype=np.int32)
    nodes[:, 0] = np.where(leaf, np.arange(len(leaf)), forest.left)
    flags = np.where(forest.default_left, DEFAULT_LEFT, 0) | np.where(forest.words_at >= 0, CATEGORICAL, 0)
    nodes[:, 1] = np.where(leaf, DEFAULT_LEFT, flags | forest.feature)
    nodes[:, 2] = np.where(leaf, np.float32(np.nan), forest.threshold).view(np.int32)
    nodes[:, 3] = np.where(leaf, forest.threshold.view(np.int32), forest.words_at)
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTrees:
    """The trees of one booster, for rows of `forest.features` features."""

    forest: Forest
    nodes: npt.NDArray[np.int32]

    @classmethod
    def made_of(cls, forest: Forest) -> "CompiledTrees":
        """Lay trees out for the walk."""
        return cls(forest=forest, nodes=_nodes(forest))

    @classmethod
    def of(cls, booster: "Booster", outputs: int) -> "CompiledTrees":
        """Compile a booster of `outputs` answers a row.

        Raises
        ------
        BundleError
            The model is none that sums trees, or has other outputs.
        """
        forest = read_forest(bytes(booster.save_raw("ubj")), name="booster")
        if forest.outputs != outputs:
            raise BundleError(f"the model has {forest.outputs} outputs, expected {outputs}")
        return cls.made_of(forest)

    def one(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Answer one row (k,) with its outputs (outputs,), before any calibration."""
        answer: npt.NDArray[np.float64] = self.rows(row.reshape(1, -1))[0]
        return answer

    def rows(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Answer a matrix (n, k) with its outputs (n, outputs), before any calibration."""
        forest = self.forest
        if matrix.ndim != 2 or matrix.shape[1] != forest.features:
            raise ValueError(f"a matrix of {matrix.shape}, expected (n, {forest.features})")
        out = np.empty((len(matrix), len(forest.base)), dtype=np.float32)
        out[:] = forest.base
        _walk(
            np.ascontiguousarray(matrix, dtype=np.float32),
            self.nodes,
            self.nodes.view(np.float32),
            forest.words,
            forest.root,
            forest.depth,
            forest.group,
            out,
        )
        return out.astype(np.float64)

    def check(self, booster: "Booster", features: int) -> None:
        """Compare with the library on random rows and on rows at the edges of this booster's splits.

        Raises
        ------
        BundleError
            An answer is further off than `TOLERANCE`, or the model takes another number of features.
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

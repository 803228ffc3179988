"""A booster's trees compiled for a few rows: an answer in microseconds, equal to the library's to the bit.

Nothing is read from files here; many rows are the library's, which shares the walk among them (`modelserve.served`).
Called by `modelserve.served` and `modelserve.models`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numba
import numpy as np
import numpy.typing as npt

from modelserve.boosters import raw_outputs
from modelserve.errors import BundleError
from modelserve.forest import Forest, read_forest

if TYPE_CHECKING:
    from xgboost import Booster

TOLERANCE: Final = 1e-5
"""How far an answer may be from the library's, in log units."""

CHECK_ROWS: Final = 64
"""How many random rows a booster is compared on, beside those made of its own thresholds."""

_SIGNATURE: Final = (
    "void(float32[:, ::1], int32[::1], float32[::1], int32[::1], boolean[::1], int32[::1], uint32[::1], int32[::1], "
    "int32[::1], float32[:, ::1])"
)


def _compiled(walk: Callable[..., None]) -> Callable[..., None]:
    """Compile at import, from the cache where there is one; a place that nothing can be written to has none."""
    try:
        made: Callable[..., None] = numba.njit(_SIGNATURE, cache=True, nogil=True)(walk)
    except RuntimeError:
        made = numba.njit(_SIGNATURE, nogil=True)(walk)
    return made


@_compiled
def _walk(rows, feature, threshold, left, default_left, words_at, words, root, group, out):  # type: ignore[no-untyped-def]  # the signature above says it
    """Add the leaf of every tree, in order, to each row's outputs; XGBoost's own comparisons in its own precision."""
    for r in range(rows.shape[0]):
        for t in range(root.size):
            node = root[t]
            below = left[node]
            while below >= 0:
                value = rows[r, feature[node]]
                at = words_at[node]
                if np.isnan(value):
                    goes_left = default_left[node]
                elif at < 0:
                    goes_left = value < threshold[node]
                elif value < 0 or value >= 16777216:
                    goes_left = True
                else:
                    category = np.uint32(value)
                    word = category >> np.uint32(5)
                    held = word < words[at] and (words[at + 1 + word] >> (category & np.uint32(31))) & np.uint32(1)
                    goes_left = not held
                node = below if goes_left else below + 1
                below = left[node]
            out[r, group[t]] += threshold[node]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTrees:
    """The trees of one booster, for rows of `forest.features` features."""

    forest: Forest

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
        return cls(forest=forest)

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
            forest.feature,
            forest.threshold,
            forest.left,
            forest.default_left,
            forest.words_at,
            forest.words,
            forest.root,
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

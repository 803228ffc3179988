"""Load XGBoost boosters and quantile forests from bytes and run them; `modelserve` imports XGBoost only here.

Reference: Meinshausen, "Quantile Regression Forests", JMLR 7 (2006); fitted in `pipelines.models.boosting`.
"""

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.forest import Forest, read_forest
from modelserve.errors import BundleError
from scheduler_core.types import FloatArray

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["VALUES_PER_LEAF", "QuantileForest", "contributions", "read_quantile_forest"]

VALUES_PER_LEAF: Final = 8
"""Number of training values that each leaf holds, so that every tree weighs the same."""
STORED: Final = np.dtype("<f4")
"""Type of the values in the bundle's file. The file has only these values, leaf by leaf in the order of the nodes."""

OPTIONAL_LAYERS = ("sklearn", "pandas")
"""Modules that XGBoost imports but prediction does not need; they cost each worker about 1 s and 128 MiB."""


def lean_xgboost() -> Any:  # XGBoost publishes no types
    """Import xgboost without scikit-learn and pandas, unless one of the three is already imported.

    A process that imported one of them before (training, a notebook) gets XGBoost with its scikit-learn classes.
    """
    if "xgboost" not in sys.modules and not any(layer in sys.modules for layer in OPTIONAL_LAYERS):
        try:
            # A name that maps to None makes `import` raise ImportError, which xgboost treats as "not installed".
            sys.modules.update(dict.fromkeys(OPTIONAL_LAYERS))  # type: ignore[arg-type]  # the type stub allows no None
            import xgboost
        finally:
            for layer in OPTIONAL_LAYERS:
                sys.modules.pop(layer, None)
    import xgboost  # cheap if already imported

    return xgboost


def load_booster(data: bytes, *, features: int, outputs: int, name: str) -> tuple["Booster", Forest]:
    """Check the trees in `.ubj` bytes, load the booster, and return both."""
    # Check first: XGBoost crashes the process on an empty buffer, deep nesting or an index out of range.
    forest = read_forest(data, name=name)
    if forest.features != features:
        raise BundleError(f"{name}: the model takes {forest.features} features, expected {features} (contract.json)")
    if forest.outputs != outputs:
        raise BundleError(f"{name}: the model has {forest.outputs} outputs, expected {outputs} (card.json)")
    xgboost = lean_xgboost()
    try:
        booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(data))
        answer = raw_outputs(booster, np.full((1, features), np.nan, np.float32))
    except (xgboost.core.XGBoostError, ValueError, TypeError) as error:
        raise BundleError(f"{name}: XGBoost cannot read it, expected a model it saved as .ubj; train again") from error
    if booster.num_features() != features or answer.shape[1] != outputs:
        raise BundleError(f"{name}: XGBoost and the tree reader disagree on its shape; train again")
    return booster, forest


def raw_outputs(booster: "Booster", matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the booster's outputs (n, outputs) for a float32 matrix (n, k), before calibration."""
    answer = np.asarray(booster.inplace_predict(matrix), dtype=np.float64)
    return answer.reshape(len(matrix), -1)


def contributions(booster: "Booster", row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the exact tree SHAP values of a row (1, k); shape (outputs, k + 1), with the base value as last column.

    References
    ----------
    Lundberg, Erion, Lee: Consistent individualized feature attribution for tree ensembles.
    """
    # The feature contract fixes the order of the columns, so XGBoost need not check their names.
    data = lean_xgboost().DMatrix(row, feature_types=booster.feature_types, enable_categorical=True, nthread=1)
    answer = booster.predict(data, pred_contribs=True, strict_shape=True, validate_features=False)
    values: npt.NDArray[np.float64] = np.asarray(answer, dtype=np.float64)[0]
    return values


@dataclass(frozen=True, kw_only=True)
class QuantileForest:
    """Trees whose leaves hold sampled run times, pooled over all trees into p50 and p90.

    `values` (leaves, `VALUES_PER_LEAF`), in the order of the nodes, are log run times minus the reference p50 of their
    job.
    """

    forest: Forest
    values: npt.NDArray[np.float32]

    @property
    def stored(self) -> bytes:
        """Return the values as the bytes of the bundle's file."""
        return self.values.astype(STORED).tobytes()

    def rows(self, matrix: npt.NDArray[np.float32]) -> FloatArray:
        """Return p50 and p90 (n, 2) of a matrix (n, k), in log units relative to the reference p50."""
        from modelserve.bundle.trees.compiled import pooled  # numba: a process that only reads bundles does not load it

        out, forest = np.empty((len(matrix), 2)), self.forest
        rows, values = np.ascontiguousarray(matrix, dtype=np.float32), np.ascontiguousarray(self.values)
        trees = self._nodes, self._nodes.view(np.float32), forest.words, forest.root, forest.depth
        pooled(rows, *trees, values, out)
        return out

    @cached_property
    def _nodes(self) -> npt.NDArray[np.int32]:
        """The nodes in the layout of `pooled`."""
        nodes, leaf = self.forest.nodes.copy(), self.forest.left < 0
        nodes[leaf, 3] = np.arange(int(leaf.sum()))
        return nodes.reshape(-1)


def read_quantile_forest(trees: bytes, values: bytes, *, features: int, name: str) -> QuantileForest:
    """Read the two files of a forest, and check that they match."""
    forest = read_forest(trees, name=f"{name}.ubj")
    if forest.features != features or forest.outputs != 1 or (forest.words_at >= 0).any() or not len(forest.root):
        raise BundleError(f"{name}.ubj: other trees, expected numeric splits on {features} features; train again")
    leaves = int((forest.left < 0).sum())
    expected = leaves * VALUES_PER_LEAF * STORED.itemsize
    if len(values) != expected:
        raise BundleError(
            f"{name}.f32: found {len(values)} bytes, expected {expected} for {leaves} leaves; train again"
        )
    read = np.frombuffer(values, STORED).reshape(leaves, VALUES_PER_LEAF).astype(np.float32)
    if not np.isfinite(read).all():
        raise BundleError(f"{name}.f32: found values that are not finite, expected log run times; train again")
    return QuantileForest(forest=forest, values=read)

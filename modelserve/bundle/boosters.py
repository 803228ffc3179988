"""Load XGBoost boosters from bytes and run them; the only module of `modelserve` that imports XGBoost."""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.forest import Forest, read_forest
from modelserve.errors import BundleError

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["contributions"]

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

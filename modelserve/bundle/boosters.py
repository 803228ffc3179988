"""XGBoost boosters as bytes and as answers: the only place here that touches the library.

No folder format and no features; nothing is trained here. Called by `modelserve.bundle.bundle` and
`modelserve.bundle.predictor`.
"""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.forest import Forest, read_forest
from modelserve.errors import BundleError

if TYPE_CHECKING:
    from xgboost import Booster

OPTIONAL_LAYERS = ("sklearn", "pandas")
"""What xgboost imports when it can, and a booster does not need: about one second and 128 MiB of every worker."""


def lean_xgboost() -> Any:  # the library publishes no types
    """Import xgboost without scikit-learn and pandas, where none of the three is loaded yet.

    A process that has loaded one of them (training, a notebook) gets the whole library, `XGBRegressor` included.
    """
    if "xgboost" not in sys.modules and not any(layer in sys.modules for layer in OPTIONAL_LAYERS):
        try:
            # A name that maps to None makes `import` raise ImportError, which xgboost takes as "not installed".
            sys.modules.update(dict.fromkeys(OPTIONAL_LAYERS))  # type: ignore[arg-type]  # None is the documented way
            import xgboost
        finally:
            for layer in OPTIONAL_LAYERS:
                sys.modules.pop(layer, None)
    import xgboost  # the second import is a look-up

    return xgboost


def load_booster(data: bytes, *, features: int, outputs: int, name: str) -> tuple["Booster", Forest]:
    """Load a booster from its `.ubj` bytes, once its trees were found sound, and return it with them.

    Raises
    ------
    BundleError
        The bytes are no model, or a model with another number of features or outputs.
    """
    # Asked first: over an empty buffer, bytes that nest without end or an index that leads outside, the library ends
    # the whole process.
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
        raise BundleError(f"{name}: XGBoost reads another model than its trees say; train again")
    return booster, forest


def raw_outputs(booster: "Booster", matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Answer a float32 matrix (n, k) with the booster's outputs (n, outputs), before any calibration."""
    answer = np.asarray(booster.inplace_predict(matrix), dtype=np.float64)
    return answer.reshape(len(matrix), -1)


def contributions(booster: "Booster", row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the exact tree SHAP values of a row (1, k): per output its features, the base value last (outputs, k + 1).

    References
    ----------
    Lundberg, Erion, Lee: Consistent individualized feature attribution for tree ensembles.
    """
    # The matrix is the contract's, in its order; the library would ask for the names again.
    data = lean_xgboost().DMatrix(row, feature_types=booster.feature_types, enable_categorical=True, nthread=1)
    answer = booster.predict(data, pred_contribs=True, strict_shape=True, validate_features=False)
    values: npt.NDArray[np.float64] = np.asarray(answer, dtype=np.float64)[0]
    return values

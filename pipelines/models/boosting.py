"""XGBoost on log targets: one booster with several quantile outputs, seeded, with early stopping.

Takes matrices and returns boosters; callers choose the columns (by feature contract) and the rows (by split).
Called by the other modules of `pipelines.models`.

References: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System" (2016), sections 2 and 3.
"""

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from pipelines.models.metrics import FloatArray

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """Parameters of XGBoost; `patience` is the number of rounds without improvement before early stopping.

    `rounds` is the number of boosting rounds, or with early stopping their maximum.
    """

    rounds: int = 80
    patience: int = 80
    learning_rate: float = 0.08
    num_parallel_tree: int = 4
    max_depth: int = 6
    min_child_weight: float = 200.0
    subsample: float = 0.7
    colsample_bytree: float = 0.3
    reg_lambda: float = 5.0
    max_bin: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names and types (`q` quantity, `c` category) of a matrix's columns, as the feature contract gives them."""

    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows for fitting or early stopping: matrix (n, k), target in log units (n,), and weights (n,), None for equal.

    `margin` (n, outputs) is added to the outputs of the trees before the loss is computed; None adds nothing.
    """

    matrix: Matrix
    target: FloatArray
    weights: FloatArray | None = None
    margin: FloatArray | None = None


def fit(
    rows: Rows,
    columns: Columns,
    *,
    quantiles: tuple[float, ...] = (),
    objective: str = "quantile",
    stop: Rows | None = None,
    boosting: Boosting | None = None,
    seed: int,
    nthread: int,
) -> xgb.Booster:
    """Fit one booster; with `stop`, keep the rounds up to the lowest loss on the rows `stop`.

    Parameters
    ----------
    rows, columns
        Training rows and their columns.
    quantiles
        Quantile levels, one per output, for the objective `quantile`.
    objective
        The loss: `quantile`, or `absolute` (absolute error, equivalent to `quantile` at 0.5), which has one output.
    stop
        Rows for early stopping; on a time-later split they were submitted after `rows`.
    seed, nthread
        Equal rows, seed and number of threads give an equal booster.
    """
    boosting = boosting or Boosting()
    train = _matrix(rows, columns, boosting, nthread)
    watched = [] if stop is None else [(_matrix(stop, columns, boosting, nthread, train), "stop")]
    params = xgboost_params(boosting, objective=objective, quantiles=quantiles, seed=seed, nthread=nthread)
    # With a margin, training ignores the base score, but prediction would add it: set it to 0.
    start = {} if rows.margin is None else {"base_score": 0.0}
    booster = xgb.train(
        params | start,
        train,
        num_boost_round=boosting.rounds,
        evals=watched,
        early_stopping_rounds=boosting.patience if watched else None,
        verbose_eval=False,
    )
    kept = booster[: booster.best_iteration + 1] if watched else booster
    kept.feature_names = list(columns.names)
    return kept


def constant(columns: Columns, *, quantiles: tuple[float, ...]) -> xgb.Booster:
    """Return a booster that answers 0 for every row: the form of a model for which no trees are grown."""
    zeros = np.zeros((1, len(quantiles)))
    row = Rows(matrix=np.zeros((1, len(columns.names)), dtype=np.float32), target=zeros[:, 0], margin=zeros)
    return fit(row, columns, quantiles=quantiles, boosting=Boosting(rounds=1, num_parallel_tree=1), seed=0, nthread=1)


def xgboost_params(
    boosting: Boosting, *, objective: str, quantiles: tuple[float, ...], seed: int, nthread: int
) -> dict[str, str | float | int | list[float]]:
    """Return the parameters under XGBoost's names.

    >>> xgboost_params(Boosting(), objective="absolute", quantiles=(), seed=0, nthread=1)["objective"]
    'reg:absoluteerror'
    """
    grown = {k: v for k, v in asdict(boosting).items() if k not in {"rounds", "patience"}}
    aims: dict[str, dict[str, str | list[float]]] = {
        "quantile": {"objective": "reg:quantileerror", "quantile_alpha": list(quantiles)},
        "absolute": {"objective": "reg:absoluteerror"},
    }
    return {"tree_method": "hist", "seed": seed, "nthread": nthread, "verbosity": 0, **grown, **aims[objective]}


def predict(booster: xgb.Booster, matrix: Matrix) -> FloatArray:
    """Return the outputs of the trees (n, outputs); no margin is added, and quantiles may cross."""
    if len(matrix) == 0:
        return np.zeros((0, 1))
    return np.asarray(booster.inplace_predict(matrix), dtype=np.float64).reshape(len(matrix), -1)


def rounds_of(booster: xgb.Booster) -> int:
    """Return the number of boosting rounds."""
    return int(booster.num_boosted_rounds())


def _matrix(
    rows: Rows, columns: Columns, boosting: Boosting, nthread: int, reference: xgb.QuantileDMatrix | None = None
) -> xgb.QuantileDMatrix:
    # No feature names here: XGBoost would copy them in every round. `fit` sets them on the finished booster.
    # XGBoost holds float32. It converts other types with all threads, which takes milliseconds on a busy machine.
    label, weight, margin = (
        None if each is None else each.astype(np.float32) for each in (rows.target, rows.weights, rows.margin)
    )
    return xgb.QuantileDMatrix(
        rows.matrix,
        label=label,
        weight=weight,
        base_margin=margin,
        feature_types=list(columns.types),
        enable_categorical=True,
        max_bin=boosting.max_bin,
        nthread=nthread,
        ref=reference,
    )

"""Which features matter, by permutation on held-out rows; and which requestable resources do.

Permutation importance has no sign of effect: the sign beside it is the rank correlation of the feature with its SHAP
value there, and is named so. Called by `training.runtime` and `training.usage`.

References: Breiman, "Random Forests" (2001), section 10; Lundberg and others, "From Local Explanations to Global
Understanding with Explainable AI for Trees" (2020); for the cut, item 2 of how Algorithm 1 was settled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import xgboost as xgb
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance

from features.sets import FEATURES
from pipelines.training.boosting import Columns, Matrix
from pipelines.training.metrics import FloatArray

IntArray = npt.NDArray[np.int64]
Importance = dict[str, str | float | int | None]

REPEATS: Final = 5
LARGEST_SAMPLE: Final = 1000
"""Held-out rows used at most: a spread over five shuffles is asked for, not a third digit."""

LEAST_SHARE: Final = 0.02
"""A resource below this share of the total importance is not important, however steady it is."""

REQUEST_COLUMN: Final = {"cpu_cores": "req_cpu_cores", "mem_gib": "req_mem_gib", "gpus": "req_gpus"}
"""Requestable resource to the canonical column that requests it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answering:
    """What scikit-learn permutes: the columns some tree uses, filled into the rest of the rows."""

    rows: Matrix
    used: IntArray
    loss: Callable[[Matrix, FloatArray], float]

    def fit(self) -> "_Answering":
        """Return itself: scikit-learn asks for the method and never calls it."""
        return self

    def score(self, matrix: Matrix, targets: FloatArray) -> float:
        filled = self.rows.copy()
        filled[:, self.used] = matrix
        return -self.loss(filled, targets)


def permuted(
    matrix: Matrix,
    targets: FloatArray,
    columns: Columns,
    boosters: Sequence[xgb.Booster],
    *,
    loss: Callable[[Matrix, FloatArray], float],
    seed: int,
    repeats: int = REPEATS,
) -> list[Importance]:
    """Return how much the loss of held-out rows grows when one column is shuffled, most important first.

    Parameters
    ----------
    matrix, targets
        Held-out rows (n, k), (n, ...); a sample by lot is taken where there are more than `LARGEST_SAMPLE`.
    columns
        Names and types of the matrix's columns.
    boosters
        The boosters behind `loss`. A column that none splits on cannot matter: it has mean and std 0 unshuffled.
        With one booster its first output also gives the sign; with several the sign is null.
    loss
        Of a matrix and its targets; smaller is better.

    Returns
    -------
    importances
        `feature`, `mean` and `std` over the repeats, `repeats`, and `sign`: Spearman's correlation of the feature with
        its SHAP value on these rows, null for a category and where either is constant.
    """
    rng = np.random.default_rng(seed)
    if len(matrix) > LARGEST_SAMPLE:
        sample = np.sort(rng.choice(len(matrix), LARGEST_SAMPLE, replace=False))
        matrix, targets = matrix[sample], targets[sample]
    split_on = {name for booster in boosters for name in booster.get_score(importance_type="weight")}
    used = np.flatnonzero([name in split_on for name in columns.names])
    mean, std = np.zeros(len(columns.names)), np.zeros(len(columns.names))
    if len(used) and len(matrix):
        shuffled = permutation_importance(
            _Answering(rows=matrix, used=used, loss=loss),
            matrix[:, used],
            targets,
            scoring=_Answering.score,
            n_repeats=repeats,
            random_state=seed,
        )
        mean[used], std[used] = shuffled.importances_mean, shuffled.importances_std
    signs = _signs(boosters[0], matrix, columns) if len(boosters) == 1 else [None] * len(columns.names)
    rows: list[Importance] = [
        {"feature": name, "mean": float(mean[i]), "std": float(std[i]), "repeats": repeats, "sign": signs[i]}
        for i, name in enumerate(columns.names)
    ]
    return [rows[i] for i in np.argsort(-mean, kind="stable")]


def resource_importances(importances: Sequence[Importance]) -> dict[str, tuple[float, float]]:
    """Return the mean and std of each requestable resource: summed over the features derived from its request.

    The stds are added as of independent shuffles.
    """
    found = {}
    for resource, column in REQUEST_COLUMN.items():
        derived = [i for i in importances if column in _request_needs(str(i["feature"]))]
        mean = sum(float(i["mean"] or 0.0) for i in derived)
        std = float(np.sqrt(sum(float(i["std"] or 0.0) ** 2 for i in derived)))
        found[resource] = (mean, std)
    return found


def important_resources(importances: Sequence[Importance], *, least_share: float = LEAST_SHARE) -> tuple[str, ...]:
    """Return the resources that Algorithm 1 leaves alone: mean above 2 std, and above a share of the total.

    >>> important_resources([
    ...     {"feature": "req_cpu_cores", "mean": 0.3, "std": 0.1, "repeats": 5, "sign": 0.5},
    ...     {"feature": "req_mem_gib", "mean": 0.3, "std": 0.2, "repeats": 5, "sign": 0.5},
    ...     {"feature": "req_gpus", "mean": 0.01, "std": 0.0, "repeats": 5, "sign": 0.5}])
    ('cpu_cores',)
    """
    total = sum(max(float(i["mean"] or 0.0), 0.0) for i in importances)
    resources = resource_importances(importances).items()
    return tuple(r for r, (mean, std) in resources if mean > 2 * std and mean > least_share * total)


def _request_needs(feature: str) -> tuple[str, ...]:
    known = FEATURES.get(feature)
    return known.needs if known is not None and known.from_request else ()


def _signs(booster: xgb.Booster, matrix: Matrix, columns: Columns) -> list[float | None]:
    rows = xgb.DMatrix(
        matrix, feature_names=list(columns.names), feature_types=list(columns.types), enable_categorical=True
    )
    contributions = np.asarray(booster.predict(rows, pred_contribs=True))
    shap = contributions if contributions.ndim == 2 else contributions[:, 0, :]
    return [
        None if kind == "c" else _rank_correlation(matrix[:, i], shap[:, i]) for i, kind in enumerate(columns.types)
    ]


def _rank_correlation(values: npt.NDArray[np.float32], shap: npt.NDArray[np.float32]) -> float | None:
    known = ~np.isnan(values)
    values, shap = values[known], shap[known]
    if len(values) < 3 or np.ptp(values) == 0 or np.ptp(shap) == 0:
        return None
    return float(spearmanr(values, shap).statistic)

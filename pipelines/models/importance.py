"""Permutation importance of features and of requestable resources, on held-out rows.

It has no sign, so a sign is computed apart: the rank correlation of a feature with its SHAP value, or of the change of
a request with the change of the prediction.

References: Breiman, "Random Forests" (2001), section 10; Strobl and others, "Conditional variable importance for random
forests" (2008), for shuffling within strata; Lundberg and others, "From Local Explanations to Global Understanding with
Explainable AI for Trees" (2020).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import xgboost as xgb
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance

from features.build import with_requests
from features.columns.request import REQUEST_COLUMNS
from features.contract import FeatureContract
from features.sets import FEATURES
from pipelines.models.boosting import Columns, Matrix
from pipelines.models.metrics import FloatArray

__all__ = ["LEAST_SHARE", "Spread", "important_resources"]

Importance = dict[str, str | float | int | None]

REPEATS: Final = 5
LARGEST_SAMPLE: Final = 400
"""Maximum number of held-out rows that are shuffled; a random sample of more rows is taken."""

SHAP_SAMPLE: Final = 200
"""Maximum number of held-out rows for SHAP values, which are slow: their cost grows with the square of the depth."""

LEAST_SHARE: Final = 0.02
"""Minimum share of the total importance from which a resource counts as important."""

REQUEST_COLUMN: Final = {"cpu_cores": "req_cpu_cores", "mem_gib": "req_mem_gib", "gpus": "req_gpus"}
"""Column of the jobs table with the request of each resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and standard deviation of an importance over the shuffles; `sign` as in `permuted_requests`."""

    mean: float
    std: float
    sign: float | None = None


class _Ready:
    """A placeholder estimator, which scikit-learn demands; the model is in the scoring function."""

    def fit(self) -> "_Ready":
        """Return the object itself; scikit-learn requires the method but never calls it."""
        return self


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
    """Return for each feature how much the held-out loss increases when its column is shuffled, largest increase first.

    `matrix` (n, k) and `targets` (n, ...) are of held-out rows; of more than `LARGEST_SAMPLE` a random sample is used.
    `loss` returns the loss of a matrix and its targets, as `boosters` predict it. A row has `feature`, `mean` and `std`
    of the increase over the shuffles (0 for a feature that no tree splits on), `repeats`, and `sign`: Spearman's
    correlation with the SHAP value, null for categories and constants, and if there are several boosters.
    """
    rng = np.random.default_rng(seed)
    if len(matrix) > LARGEST_SAMPLE:
        sample = np.sort(rng.choice(len(matrix), LARGEST_SAMPLE, replace=False))
        matrix, targets = matrix[sample], targets[sample]
    split_on = {name for booster in boosters for name in booster.get_score(importance_type="weight")}
    used = np.flatnonzero([name in split_on for name in columns.names])
    mean, std = np.zeros(len(columns.names)), np.zeros(len(columns.names))

    def score(_: _Ready, shown: Matrix, wanted: FloatArray) -> float:
        filled = matrix.copy()
        filled[:, used] = shown
        return -loss(filled, wanted)

    if len(used) and len(matrix):
        shuffled = permutation_importance(
            _Ready(), matrix[:, used], targets, scoring=score, n_repeats=repeats, random_state=seed
        )
        mean[used], std[used] = shuffled.importances_mean, shuffled.importances_std
    signs = _signs(boosters[0], matrix, columns) if len(boosters) == 1 else [None] * len(columns.names)
    rows: list[Importance] = [
        {"feature": name, "mean": float(mean[i]), "std": float(std[i]), "repeats": repeats, "sign": signs[i]}
        for i, name in enumerate(columns.names)
    ]
    return [rows[i] for i in np.argsort(-mean, kind="stable")]


def permuted_requests(
    frame: pl.DataFrame,
    jobs: pl.DataFrame,
    targets: FloatArray,
    contract: FeatureContract,
    *,
    loss: Callable[[Matrix, FloatArray], float],
    predict: Callable[[Matrix], FloatArray],
    seed: int,
) -> dict[str, Spread]:
    """Return for each resource how much the loss increases when its requests are shuffled among jobs of the same role.

    All features derived from the request change along, else the effect of GPUs would be attributed to cores. `frame`,
    `jobs` and `targets` (n, ...) are of held-out rows; `predict` returns the predictions (n,) of an encoded matrix.
    `sign` is Spearman's correlation, over rows and shuffles, of the change of the request with the change of the
    prediction; null if one of them never changes.
    """
    rng = np.random.default_rng(seed)
    if frame.height > LARGEST_SAMPLE:
        sample = np.sort(rng.choice(frame.height, LARGEST_SAMPLE, replace=False))
        frame, jobs, targets = frame[sample], jobs[sample], targets[sample]
    frame = frame.select(contract.names)
    if not frame.height or not any(FEATURES[name].from_request for name in contract.names):
        return dict.fromkeys(REQUEST_COLUMN, Spread(mean=0.0, std=0.0))
    rows = np.arange(frame.height)
    requests = jobs.select(pl.col(c).cast(pl.Float64) for c in REQUEST_COLUMNS).to_numpy()
    roles = [np.flatnonzero(jobs["role"] == role) for role in jobs["role"].unique().sort()]

    def score(asked: FloatArray) -> tuple[float, FloatArray]:
        matrix = contract.encode(with_requests(frame, jobs, rows, asked))
        return loss(matrix, targets), predict(matrix)

    loss_before, before = score(requests)
    spreads = {}
    for column, resource in enumerate(REQUEST_COLUMN):
        growths, requested_more, predicted_more = [], [], []
        for _ in range(REPEATS):
            asked = requests.copy()
            for members in roles:
                asked[members, column] = asked[rng.permutation(members), column]
            loss_after, after = score(asked)
            growths.append(loss_after - loss_before)
            requested_more.append(asked[:, column] - requests[:, column])
            predicted_more.append(after - before)
        sign = _rank_correlation(np.concatenate(requested_more), np.concatenate(predicted_more))
        spreads[resource] = Spread(mean=float(np.mean(growths)), std=float(np.std(growths)), sign=sign)
    return spreads


def important_resources(
    requests: Mapping[str, Spread],
    importances: Sequence[Importance],
    *,
    least_share: float = LEAST_SHARE,
    signed: bool = False,
) -> tuple[str, ...]:
    """Return the important resources, which Algorithm 1 does not shrink.

    A resource is important if the mean of its importance is above 2 standard deviations and above `least_share` of the
    total of the resources and of all features not derived from a request. If `signed`, its sign must also be negative:
    with a larger request, the predicted run time is shorter.
    """
    of_request = {name for name, feature in FEATURES.items() if feature.from_request}
    others = [float(i["mean"] or 0.0) for i in importances if i["feature"] not in of_request]
    total = sum(max(mean, 0.0) for mean in [*others, *(spread.mean for spread in requests.values())])
    return tuple(
        resource
        for resource, spread in requests.items()
        if spread.mean > 2 * spread.std and spread.mean > least_share * total
        if not signed or (spread.sign or 0.0) < 0.0
    )


def _signs(booster: xgb.Booster, matrix: Matrix, columns: Columns) -> list[float | None]:
    matrix = matrix[:SHAP_SAMPLE]
    rows = xgb.DMatrix(
        matrix, feature_names=list(columns.names), feature_types=list(columns.types), enable_categorical=True
    )
    contributions = np.asarray(booster.predict(rows, pred_contribs=True))
    shap = contributions if contributions.ndim == 2 else contributions[:, 0, :]
    return [
        None if kind == "c" else _rank_correlation(matrix[:, i], shap[:, i]) for i, kind in enumerate(columns.types)
    ]


def _rank_correlation(values: npt.NDArray[np.floating], effect: npt.NDArray[np.floating]) -> float | None:
    known = ~np.isnan(values)
    values, effect = values[known], effect[known]
    if len(values) < 3 or np.ptp(values) == 0 or np.ptp(effect) == 0:
        return None
    return float(spearmanr(values, effect).statistic)

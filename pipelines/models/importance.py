"""Permutation importance of features and of requestable resources, on held-out rows.

Permutation importance has no sign. For a feature, `sign` is the rank correlation of its value with its SHAP value; for
a resource, the rank correlation of the change of the request with the change of the prediction under shuffling.
Called by `pipelines.models.runtime` and `usage`.

References: Breiman, "Random Forests" (2001), section 10; Strobl and others, "Conditional variable importance for random
forests" (2008), for shuffling within strata; Lundberg and others, "From Local Explanations to Global Understanding with
Explainable AI for Trees" (2020); for the cut, item 2 of how Algorithm 1 was settled.
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

IntArray = npt.NDArray[np.int64]
Importance = dict[str, str | float | int | None]

REPEATS: Final = 5
LARGEST_SAMPLE: Final = 400
"""Maximum of held-out rows: enough for the spread over five shuffles."""

SHAP_SAMPLE: Final = 200
"""Maximum of held-out rows for SHAP values, whose cost grows with the square of the depth."""

LEAST_SHARE: Final = 0.02
"""Minimum share of the total importance for an important resource."""

REQUEST_COLUMN: Final = {"cpu_cores": "req_cpu_cores", "mem_gib": "req_mem_gib", "gpus": "req_gpus"}
"""Canonical request column of each resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and standard deviation over the shuffles; `sign` as in `permuted_requests`."""

    mean: float
    std: float
    sign: float | None = None


class _Ready:
    """A placeholder estimator for scikit-learn; the scoring function holds the model."""

    def fit(self) -> "_Ready":
        """Return itself: scikit-learn requires the method and never calls it."""
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
    """Return the increase of the held-out loss when one column is shuffled, most important first.

    Parameters
    ----------
    matrix, targets
        Held-out rows (n, k), (n, ...); a random sample is used above `LARGEST_SAMPLE` rows.
    columns
        Names and types of the matrix's columns.
    boosters
        The boosters behind `loss`. A column in no split gets mean and std 0 without shuffling. With one booster its
        first output also gives the sign; with several the sign is null.
    loss
        Loss of a matrix and its targets; smaller is better.

    Returns
    -------
    importances
        `feature`, `mean` and `std` over the repeats, `repeats`, and `sign`: Spearman's correlation of the feature with
        its SHAP value on these rows, null for categories and constants.
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
    repeats: int = REPEATS,
) -> dict[str, Spread]:
    """Return the increase of the loss when one resource's request is shuffled along with its derived features.

    Shuffling `cpu_cores_per_gpu` alone would attribute the effect of GPUs to cores. Requests are shuffled within a
    role: between roles a request is a proxy for the role, whose effect would be attributed to the request.

    Parameters
    ----------
    frame, jobs, targets
        Features of held-out rows, their jobs, and their targets (n,).
    contract, loss
        The encoding of features, and the loss of the encoded matrix.
    predict
        The prediction for the same matrix (n,).

    Returns
    -------
    spreads
        By requestable resource; zero where no feature of the contract derives from a request. `sign` is Spearman's
        correlation, over rows and shuffles, of the change of the request with the change of the prediction; null
        if either never changes.
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

    asked_for, said = score(requests)
    spreads = {}
    for column, resource in enumerate(REQUEST_COLUMN):
        growths, asked_more, said_more = [], [], []
        for _ in range(repeats):
            asked = requests.copy()
            for members in roles:
                asked[members, column] = asked[rng.permutation(members), column]
            lost, answered = score(asked)
            growths.append(lost - asked_for)
            asked_more.append(asked[:, column] - requests[:, column])
            said_more.append(answered - said)
        sign = _rank_correlation(np.concatenate(asked_more), np.concatenate(said_more))
        spreads[resource] = Spread(mean=float(np.mean(growths)), std=float(np.std(growths)), sign=sign)
    return spreads


def important_resources(
    requests: Mapping[str, Spread], importances: Sequence[Importance], *, least_share: float = LEAST_SHARE
) -> tuple[str, ...]:
    """Return the resources that Algorithm 1 does not shrink: mean above 2 std and above a share of the total.

    The total is over resources and features not derived from a request.

    >>> important_resources({"cpu_cores": Spread(mean=0.3, std=0.1), "mem_gib": Spread(mean=0.3, std=0.2),
    ...     "gpus": Spread(mean=0.01, std=0.0)}, [])
    ('cpu_cores',)
    """
    others = [float(i["mean"] or 0.0) for i in importances if not _from_request(str(i["feature"]))]
    total = sum(max(mean, 0.0) for mean in [*others, *(spread.mean for spread in requests.values())])
    return tuple(r for r, s in requests.items() if s.mean > 2 * s.std and s.mean > least_share * total)


def _from_request(feature: str) -> bool:
    return feature in FEATURES and FEATURES[feature].from_request


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

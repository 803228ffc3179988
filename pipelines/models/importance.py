"""Permutation importance of features and of requestable resources, on held-out rows.

A sign is computed with it: the rank correlation of the change of a value with the change of the prediction.

References: Breiman, "Random Forests" (2001), section 10; Strobl and others, "Conditional variable importance for random
forests" (2008), for shuffling within strata.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import xgboost as xgb
from scipy.stats import spearmanr

from features.build import with_requests
from features.contract import FeatureContract
from features.history import REQUEST_COLUMNS
from features.sets import FEATURES
from pipelines.models.boosting import Columns, Matrix
from pipelines.models.metrics import FloatArray

__all__ = ["LEAST_SHARE", "Spread", "important_resources"]

IntArray = npt.NDArray[np.int64]
Importance = dict[str, str | float | int | None]
Score = Callable[[Matrix], tuple[float, FloatArray | None]]
"""Return the loss of the forecast for encoded rows, and the predictions (n,) that the sign is about, or None."""

Predict = Callable[[Matrix], FloatArray]
"""Return the answers (n, outputs) for encoded rows (n, k)."""

REPEATS: Final = 5
"""Number of shuffles of each resource."""
FEATURE_REPEATS: Final = 3
"""Number of shuffles of each feature; small, because each shuffle runs every trained member of a model."""
LARGEST_SAMPLE: Final = 300
"""Maximum number of held-out rows that are shuffled; a random sample of more rows is taken."""

LEAST_SHARE: Final = 0.02
"""Minimum share of the total importance from which a resource counts as important."""

REQUEST_COLUMN: Final = {"cpu_cores": "req_cpu_cores", "mem_gib": "req_mem_gib", "gpus": "req_gpus"}
"""Column of the jobs table with the request of each resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and standard deviation of an importance over the shuffles.

    `sign` is Spearman's correlation, over rows and shuffles, of the change of the value with the change of the
    prediction; None if one of them never changes.
    """

    mean: float
    std: float
    sign: float | None = None


def sample_of(rows: IntArray, *, seed: int) -> IntArray:
    """Return at most `LARGEST_SAMPLE` of the rows in their order, drawn at random if there are more."""
    if len(rows) <= LARGEST_SAMPLE:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), LARGEST_SAMPLE, replace=False))]


def permuted(
    matrix: Matrix,
    columns: Columns,
    score: Score,
    *,
    used: Set[str],
    gains: Mapping[str, float] | None,
    seed: int,
) -> list[Importance]:
    """Return for each feature how much the held-out loss increases when its column is shuffled, largest increase first.

    `matrix` (n, k) holds held-out rows, which `score` scores as the model would answer them. A row has `feature`,
    `mean` and `std` of the increase over the shuffles (0 for a feature that is not among `used`), `repeats`, `sign`
    (null for categories), and `xgboost_gain`, the feature's share of XGBoost's own gain (`gains`), null if None.
    """
    rng = np.random.default_rng(seed)
    before = score(matrix) if len(matrix) else (0.0, None)

    def shuffled(column: int) -> tuple[Matrix, FloatArray]:
        shown = matrix.copy()
        shown[:, column] = matrix[rng.permutation(len(matrix)), column]
        return shown, (shown[:, column] - matrix[:, column]).astype(np.float64)

    rows: list[Importance] = []
    for i, name in enumerate(columns.names):
        spread = Spread(mean=0.0, std=0.0)
        if name in used and len(matrix):
            spread = spread_over(score, before, (shuffled(i) for _ in range(FEATURE_REPEATS)))
        sign = None if columns.types[i] == "c" else spread.sign
        gain = None if gains is None else gains.get(name, 0.0)
        of_shuffles = {"mean": spread.mean, "std": spread.std, "repeats": FEATURE_REPEATS, "sign": sign}
        rows.append({"feature": name, **of_shuffles, "xgboost_gain": gain})
    return sorted(rows, key=lambda row: -float(row["mean"] or 0.0))


def reusing(predict: Predict, matrix: Matrix, places: Sequence[int]) -> Predict:
    """Return `predict`, run again only for rows that differ from those of `matrix` (n, k) in the columns `places`.

    These are the columns that it reads, and a row's answer does not depend on other rows: answers are equal to the bit.
    """
    known, read = predict(matrix), matrix[:, places]
    unknown = np.isnan(read)

    def predicted(shown: Matrix) -> FloatArray:
        now = shown[:, places]
        rows = np.flatnonzero(((now != read) & ~(np.isnan(now) & unknown)).any(axis=1))
        answers = known.copy()
        if len(rows):
            answers[rows] = predict(shown[rows])
        return answers

    return predicted


def gain_shares(boosters: Sequence[xgb.Booster]) -> dict[str, float]:
    """Return the share of each feature in XGBoost's own importance, the total gain of its splits; a mean over boosters.

    Features that no tree splits on are absent.
    """
    shares: dict[str, float] = {}
    for booster in boosters:
        gains = {name: float(gain) for name, gain in booster.get_score(importance_type="total_gain").items()}
        total = sum(gains.values())
        for name, gain in gains.items():
            shares[name] = shares.get(name, 0.0) + gain / total / len(boosters)
    return shares


def permuted_requests(
    frame: pl.DataFrame, jobs: pl.DataFrame, contract: FeatureContract, score: Score, *, seed: int
) -> dict[str, Spread]:
    """Return for each resource how much the loss increases when its requests are shuffled among jobs of the same role.

    All features derived from the request change along, else the effect of GPUs would be attributed to cores. `frame`
    and `jobs` (n rows) are held-out rows, which `score` scores once encoded.
    """
    rng = np.random.default_rng(seed)
    frame = frame.select(contract.names)
    if not frame.height or not any(FEATURES[name].from_request for name in contract.names):
        return dict.fromkeys(REQUEST_COLUMN, Spread(mean=0.0, std=0.0))
    rows = np.arange(frame.height)
    requests = jobs.select(pl.col(c).cast(pl.Float64) for c in REQUEST_COLUMNS).to_numpy()
    roles = [np.flatnonzero(jobs["role"] == role) for role in jobs["role"].unique().sort()]

    def shuffled(column: int) -> tuple[Matrix, FloatArray]:
        asked = requests.copy()
        for members in roles:
            asked[members, column] = asked[rng.permutation(members), column]
        return contract.encode(with_requests(frame, jobs, rows, asked)), asked[:, column] - requests[:, column]

    before = score(contract.encode(with_requests(frame, jobs, rows, requests)))
    return {
        resource: spread_over(score, before, (shuffled(column) for _ in range(REPEATS)))
        for column, resource in enumerate(REQUEST_COLUMN)
    }


def spread_over(
    score: Score, before: tuple[float, FloatArray | None], shuffles: Iterable[tuple[Matrix, FloatArray]]
) -> Spread:
    """Score shuffled rows, each with the change of the shuffled value (n,), against the rows as they are."""
    growths, moved, answered = [], [], []
    for matrix, change in shuffles:
        loss, predicted = score(matrix)
        growths.append(loss - before[0])
        if predicted is not None and before[1] is not None:
            moved.append(change)
            answered.append(predicted - before[1])
    sign = _rank_correlation(np.concatenate(moved), np.concatenate(answered)) if moved else None
    return Spread(mean=float(np.mean(growths)), std=float(np.std(growths)), sign=sign)


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


def _rank_correlation(values: npt.NDArray[np.floating], effect: npt.NDArray[np.floating]) -> float | None:
    known = ~np.isnan(values)
    values, effect = values[known], effect[known]
    if len(values) < 3 or np.ptp(values) == 0 or np.ptp(effect) == 0:
        return None
    return float(spearmanr(values, effect).statistic)

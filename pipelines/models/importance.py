"""Permutation importance of features and of requestable resources, on held-out rows.

A sign is computed with it: the rank correlation of the change of a value with the change of the prediction.

References: Breiman, "Random Forests" (2001), section 10; Strobl and others, "Conditional variable importance for random
forests" (2008), for shuffling within strata.
"""

from collections.abc import Callable, Mapping, Sequence, Set
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
Scored = tuple[FloatArray, FloatArray]
Score = Callable[[Matrix, IntArray], Scored]
"""Return the loss (m,) of encoded rows (m, k), and the predictions (m,) that the sign is about.

The second argument gives the held-out row that each row is a copy of (m,).
"""

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
    places = [i for i, name in enumerate(columns.names) if name in used]
    spreads = spreads_of_columns(matrix, places, score, seed=seed) if len(matrix) else {}
    rows: list[Importance] = []
    for i, name in enumerate(columns.names):
        spread = spreads.get(i, Spread(mean=0.0, std=0.0))
        sign = None if columns.types[i] == "c" else spread.sign
        gain = None if gains is None else gains.get(name, 0.0)
        of_shuffles = {"mean": spread.mean, "std": spread.std, "repeats": FEATURE_REPEATS, "sign": sign}
        rows.append({"feature": name, **of_shuffles, "xgboost_gain": gain})
    return sorted(rows, key=lambda row: -float(row["mean"] or 0.0))


def spreads_of_columns(matrix: Matrix, places: Sequence[int], score: Score, *, seed: int) -> dict[int, Spread]:
    """Return the importance of each of the columns `places` of held-out rows (n, k).

    All copies of a row are scored together: they differ in one column each, and a walk of trees visits only those that
    split on it. Copies with the same value as the row keep its score.
    """
    rng = np.random.default_rng(seed)
    rows, column = np.arange(len(matrix)), np.repeat(np.array(places, dtype=np.int64), FEATURE_REPEATS)
    values = np.array([matrix[rng.permutation(len(rows)), each] for each in column]).reshape(len(column), len(rows))
    before = score(matrix, rows)
    loss, answer = (np.tile(each, (len(column), 1)) for each in before)
    for row in rows:
        now, held = values[:, row], matrix[row, column]
        changed = np.flatnonzero((now != held) & ~(np.isnan(now) & np.isnan(held)))
        copies = np.tile(matrix[row], (len(changed), 1))
        copies[np.arange(len(changed)), column[changed]] = now[changed]
        loss[changed, row], answer[changed, row] = score(copies, np.full(len(changed), row))
    change = (values - matrix[:, column].T).astype(np.float64)
    of_column = {place: column == place for place in places}
    return {place: spread_of(before, (loss[own], answer[own]), change[own]) for place, own in of_column.items()}


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

    All features derived from the request change with it; otherwise the effect of GPUs would be attributed to cores.
    `frame` and `jobs` (n rows) are held-out rows, which `score` scores once encoded.
    """
    rng = np.random.default_rng(seed)
    frame = frame.select(contract.names)
    if not frame.height or not any(FEATURES[name].from_request for name in contract.names):
        return dict.fromkeys(REQUEST_COLUMN, Spread(mean=0.0, std=0.0))
    rows = np.arange(frame.height)
    requests = jobs.select(pl.col(c).cast(pl.Float64) for c in REQUEST_COLUMNS).to_numpy()

    def encoded(column: int, values: npt.NDArray[np.floating]) -> Matrix:
        shown = requests.copy()
        shown[:, column] = values
        return contract.encode(with_requests(frame, jobs, rows, shown))

    return spreads_within(roles_of(jobs), dict(zip(REQUEST_COLUMN, requests.T, strict=True)), encoded, score, rng)


def roles_of(jobs: pl.DataFrame) -> list[IntArray]:
    """Return the row numbers of each role."""
    return [np.flatnonzero(jobs["role"] == role) for role in jobs["role"].unique().sort()]


def spreads_within(
    roles: Sequence[IntArray],
    resources: Mapping[str, npt.NDArray[np.floating]],
    encoded: Callable[[int, npt.NDArray[np.floating]], Matrix],
    score: Score,
    rng: np.random.Generator,
) -> dict[str, Spread]:
    """Return the importance of each resource, whose amounts (n,) are shuffled among the rows of each role.

    `encoded` returns the rows (n, k) with other amounts of the resource of that number.
    """
    spreads: dict[str, Spread] = {}
    before: Scored | None = None
    for number, (resource, amounts) in enumerate(resources.items()):
        rows = np.arange(len(amounts))
        before = before or score(encoded(number, amounts), rows)
        shuffled = np.tile(amounts, (REPEATS, 1))
        for shown in shuffled:
            for members in roles:
                shown[members] = amounts[rng.permutation(members)]
        scored = [score(encoded(number, shown), rows) for shown in shuffled]
        after = np.stack([loss for loss, _ in scored]), np.stack([answer for _, answer in scored])
        spreads[resource] = spread_of(before, after, (shuffled - amounts).astype(np.float64))
    return spreads


def spread_of(before: Scored, after: Scored, change: FloatArray) -> Spread:
    """Return how shuffling a value changes loss and prediction.

    `after`, the loss of shuffled rows, and `change`, of the value, are (repeats, n).
    """
    growths = (after[0] - before[0]).mean(axis=1)
    sign = _rank_correlation(change.ravel(), (after[1] - before[1]).ravel())
    return Spread(mean=float(growths.mean()), std=float(growths.std()), sign=sign)


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

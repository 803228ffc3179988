"""The response model of a task type: how its log run time depends on the five resources of Yang, Hong and Tang.

One XGBoost regressor of CPU cores, memory and GPUs as requested, and of network traffic and GPU memory, which no trace
requests, as similar jobs used them. It explains and is judged; the run-time model forecasts.
"""

from typing import Final

import numpy as np
import polars as pl
import xgboost as xgb

from features.frames import has_ended
from modelserve.bundle.card import ResourceImportance, ResponseState
from pipelines.errors import TrainingError
from pipelines.models import boosting
from pipelines.models.boosting import Matrix
from pipelines.models.examples import Examples, IntArray, sized_rows
from pipelines.models.fitted import LEAST_TRAINED
from pipelines.models.importance import REPEATS, REQUEST_COLUMN, Score, spread_over
from pipelines.models.judging import day_draws, ratio_interval
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import Split, group_folds, leak_key

FOLDS: Final = 5
MOST_ROWS: Final = 20_000
"""Maximum number of jobs: the latest submitted."""

USED: Final = {"net_bytes_per_s": "net_read_bytes_per_s", "gpu_mem_gib": "gpu_mem_max_gib"}
"""Column of the `usage` table with the use of each resource that no trace requests."""
SIMILAR: Final = (("group", "role"), ("user", "role"), ("role",))
"""What similar jobs share; the first in which a job was measured counts."""

PARAMETERS: Final = {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 4, "learning_rate": 0.1}
ROUNDS: Final = 300
PATIENCE: Final = 20
"""Rounds without improvement on groups that are not fitted, after which boosting stops."""
LEAST_LEAF_SHARE: Final = 0.02


def response_of(examples: Examples, trained: IntArray, *, seed: int, nthread: int) -> ResponseState:
    """Train and judge the response model of the jobs that a run-time model was trained on (row numbers `trained`).

    Each job is forecast by a model that was trained on other groups. The model is trusted if it leads over a constant
    with its whole interval over resampled groups.
    """
    rows = sized_rows(examples.jobs, np.sort(trained))[-MOST_ROWS:]
    if len(rows) < LEAST_TRAINED:
        return ResponseState(trusted=False, why=f"{len(rows)} ended jobs, expected {LEAST_TRAINED}", rows=len(rows))
    jobs, log_s = examples.jobs[rows], examples.log_y[rows]
    try:
        folds = group_folds(jobs, folds=FOLDS, seed=seed)
    except TrainingError:
        return ResponseState(trusted=False, why=f"fewer than {FOLDS} groups to judge by", rows=len(rows))
    matrix = resources(examples.jobs)[rows]
    models = [_fit(matrix, log_s, split, seed=seed, nthread=nthread) for split in folds]

    def score(shown: Matrix) -> tuple[float, FloatArray]:
        forecast = np.empty(len(shown))
        for split, model in zip(folds, models, strict=True):
            forecast[split.test] = boosting.predict(model, shown[split.test])[:, 0]
        return float(np.mean((log_s - forecast) ** 2)), forecast

    before = score(matrix)
    constant = np.empty(len(rows))
    for split in folds:
        constant[split.test] = (log_s[split.test] - log_s[split.train].mean()) ** 2
    groups = np.unique(leak_key(jobs).to_numpy(), return_inverse=True)[1].astype(np.int64)
    draws = day_draws(int(groups.max()) + 1, seed=seed)
    lead = ratio_interval(groups, constant - (log_s - before[1]) ** 2, constant, draws)
    return ResponseState(
        trusted=lead.lo > 0.0,
        why=f"removes {lead.value:.1%} [{lead.lo:.1%}, {lead.hi:.1%}] of a constant's squared error of log run time "
        f"on {len(rows)} jobs, each forecast without its group",
        rows=len(rows),
        lead=lead.value,
        lead_lo=lead.lo,
        lead_hi=lead.hi,
        importances=_importances(matrix, jobs["role"], score, before, seed=seed),
    )


def resources(jobs: pl.DataFrame) -> Matrix:
    """Return the inputs (n, 5): the requests, and the mean use of similar jobs that ended before the submission."""
    requests = jobs.select(pl.col(name).cast(pl.Float64) for name in REQUEST_COLUMN.values())
    return pl.concat([requests, similar_use(jobs)], how="horizontal").to_numpy().astype(np.float32)


def similar_use(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the mean use (n rows, columns `USED`) of similar jobs that ended strictly before; null if unknown."""
    unknown = pl.lit(None, pl.Float64)
    used = {name: pl.col(column) if column in jobs.columns else unknown for name, column in USED.items()}
    rows = jobs.with_row_index("row").with_columns(ended=has_ended(), **used)
    found = rows.select(unknown.alias(name) for name in USED)
    for keys in SIMILAR:
        ended = rows.filter("ended", pl.col(keys[0]).is_not_null()).sort("end_ts", "row")
        sums = (pl.col(name).fill_null(0.0).cum_sum() / pl.col(name).cum_count() for name in USED)
        means = ended.select(
            *keys, "end_ts", *(mean.over(keys).alias(name) for mean, name in zip(sums, USED, strict=True))
        )
        known = (
            rows.select("row", "submit_ts", *keys)
            .sort("submit_ts", "row")
            .join_asof(
                means,
                left_on="submit_ts",
                right_on="end_ts",
                by=list(keys),
                allow_exact_matches=False,
                check_sortedness=False,
            )
            .sort("row")
        )
        found = found.select(pl.col(name).fill_null(known[name].fill_nan(None)) for name in USED)
    return found


def _fit(matrix: Matrix, log_s: FloatArray, split: Split, *, seed: int, nthread: int) -> xgb.Booster:
    """Fit twice: without the early-stopping groups to find the number of rounds, then on all training rows."""
    parameters = {
        **PARAMETERS,
        "base_score": float(log_s[split.train].mean()),
        "min_child_weight": max(1.0, LEAST_LEAF_SHARE * len(split.train)),
        "seed": seed,
        "nthread": nthread,
        "verbosity": 0,
    }

    def data(rows: IntArray) -> xgb.DMatrix:
        return xgb.DMatrix(matrix[rows], label=log_s[rows].astype(np.float32), nthread=nthread)

    watched = [(data(split.stop), "stop")]
    stopped = {"evals": watched, "early_stopping_rounds": PATIENCE, "verbose_eval": False}
    first = xgb.train(parameters, data(split.fit), ROUNDS, **stopped)
    return xgb.train(parameters, data(split.train), first.best_iteration + 1)


def _importances(
    matrix: Matrix,
    role: pl.Series,
    score: Score,
    before: tuple[float, FloatArray],
    *,
    seed: int,
) -> tuple[ResourceImportance, ...]:
    """Return the permutation importance of each resource, shuffled among jobs of the same role."""
    rng = np.random.default_rng(seed)
    roles = [np.flatnonzero(role == each) for each in role.unique().sort()]

    def shuffled(column: int) -> tuple[Matrix, FloatArray]:
        shown = matrix.copy()
        for members in roles:
            shown[members, column] = shown[rng.permutation(members), column]
        return shown, (shown[:, column] - matrix[:, column]).astype(np.float64)

    found = []
    for column, name in enumerate((*REQUEST_COLUMN, *USED)):
        spread = spread_over(score, before, (shuffled(column) for _ in range(REPEATS)))
        values = {"mean": spread.mean, "std": spread.std, "sign": spread.sign}
        found.append(ResourceImportance.model_validate({"resource": name, "repeats": REPEATS, **values}))
    return tuple(found)
